// SPDX-License-Identifier: Apache-2.0
// Measurements that are processes of their own, ours and the peers' in turn, so that a slow minute of the machine is
// everybody's.
#pragma once
#include <string>
#include <vector>

namespace troupe::bench {

/// The folder of the sources of a question, bench/<question>, where its peers' scripts are; TROUPE_BENCH_DIR says where
/// bench/ is on a machine to which the program was carried.
std::string peers_folder(const std::string& question);

/// The numbers that a shell command prints. None when it fails: its last words are then on standard error, for a peer
/// may not be installed and a program of ours may be broken. All of what it says on standard error goes to the end of
/// the file TROUPE_BENCH_LOG, where that is set.
std::vector<double> measure(const std::string& command);
/// The commands take turns, `repeats` rounds. Of each the medians of its first `numbers` numbers, 0 for those that it
/// does not print and where it does not work; what fails at its first turn gets no other.
std::vector<std::vector<double>> rounds(int repeats, size_t numbers, const std::vector<std::string>& commands);

/// "VmRSS" (resident) or "VmHWM" (its peak) of this process, in MiB.
double memory_mib(const char* what);

/// A number for a table, "no numbers" for 0.
std::string show(double number);
/// The cells "| ratio | yes |" of a row that must be `at_least` times the larger of the peers' numbers.
std::string verdict(double ours, double peer, double other, double at_least = 1);

}  // namespace troupe::bench
