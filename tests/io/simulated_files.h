// SPDX-License-Identifier: Apache-2.0
// A file system in memory that can stop at any byte, run full, fail a chosen operation, and show what a disk may hold
// after a kill or a power cut.
#pragma once
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "io/file_system.h"

/// One directory. After "death" every operation fails and changes nothing.
class SimulatedFiles : public troupe::FileSystem, public std::enable_shared_from_this<SimulatedFiles> {
 public:
  struct File {
    std::string data;
    size_t synced = 0;  // bytes that a power cut leaves
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;

  Names now;              // what processes see
  Names durable;          // names that a power cut leaves
  int64_t budget = -1;    // bytes and operations until death; -1: never
  int64_t space = -1;     // bytes until the disk is full; -1: never
  bool no_locks = false;  // as on some network file systems
  bool no_links = false;  // the same
  std::string fail;       // the operation of this name fails once, without effect
  std::vector<std::string> log;

  bool dead() const { return budget == 0; }
  int64_t spent = 0;

  /// What is there after the process was killed, or after the power was cut.
  std::shared_ptr<SimulatedFiles> after_kill() const { return copy(now, false); }
  std::shared_ptr<SimulatedFiles> after_power_cut() const { return copy(durable, true); }
  /// Power cut where the directory's changes had reached the disk, but unsynced data had not.
  std::shared_ptr<SimulatedFiles> after_late_power_cut() const { return copy(now, true); }

  troupe::Result<std::unique_ptr<troupe::WritableFile>> create(const std::string& path) override {
    TROUPE_RETURN_IF_ERROR(step("create", path));
    auto file = std::make_shared<File>();
    now[path] = file;
    return std::unique_ptr<troupe::WritableFile>(new Writer(shared_from_this(), file, path));
  }
  troupe::Result<std::pair<std::string, std::unique_ptr<troupe::WritableFile>>> create_temporary(
      const std::string& path) override {
    std::string name = path + ".0.temporary";
    TROUPE_ASSIGN(auto file, create(name));
    return std::pair(std::move(name), std::move(file));
  }
  void remove_temporaries(const std::string& path) override { now.erase(path + ".0.temporary"); }
  /// Not an operation that costs: a kill frees locks, and a copy has none.
  troupe::Result<std::unique_ptr<troupe::FileLock>> lock(const std::string& path) override {
    if (no_locks) return troupe::make_error(troupe::Code::kFailedPrecondition, "cannot lock '{}': no locks", path);
    auto& held = locks_[path];
    if (!held.expired()) return troupe::make_error(troupe::Code::kFailedPrecondition, "'{}' is locked", path);
    auto lock = std::make_unique<Lock>();
    held = lock->held;
    return std::unique_ptr<troupe::FileLock>(std::move(lock));
  }
  troupe::Result<std::unique_ptr<troupe::ReadableFile>> open(const std::string& path) override {
    if (!now.contains(path)) return troupe::make_error(troupe::Code::kNotFound, "no file '{}'", path);
    return std::unique_ptr<troupe::ReadableFile>(new Reader(now[path], path));
  }
  troupe::Status rename(const std::string& from, const std::string& to) override {
    TROUPE_RETURN_IF_ERROR(step("rename", from));
    if (!now.contains(from)) return troupe::make_error(troupe::Code::kNotFound, "no file '{}'", from);
    now[to] = now[from];
    now.erase(from);
    return {};
  }
  troupe::Result<bool> rename_new(const std::string& from, const std::string& to) override {
    if (now.contains(to)) return false;
    TROUPE_RETURN_IF_ERROR(rename(from, to));
    return true;
  }
  troupe::Result<bool> link_new(const std::string& from, const std::string& to) override {
    if (no_links) return troupe::make_error(troupe::Code::kUnimplemented, "no links");
    if (now.contains(to)) return false;
    TROUPE_RETURN_IF_ERROR(step("link", from));
    if (!now.contains(from)) return troupe::make_error(troupe::Code::kNotFound, "no file '{}'", from);
    now[to] = now[from];
    return true;
  }
  bool in_use(const std::string&) override { return false; }
  troupe::Status remove(const std::string& path) override {
    TROUPE_RETURN_IF_ERROR(step("remove", path));
    if (now.erase(path) == 0) return troupe::make_error(troupe::Code::kNotFound, "no file '{}'", path);
    return {};
  }
  troupe::Status sync_directory(const std::string& directory) override {
    TROUPE_RETURN_IF_ERROR(step("sync_directory", directory));
    durable = now;
    return {};
  }
  troupe::Status make_directories(const std::string& directory) override { return step("make_directories", directory); }
  troupe::Result<std::vector<std::string>> list(const std::string& directory) override {
    if (dead()) return troupe::make_error(troupe::Code::kInternal, "dead");
    std::vector<std::string> names;
    for (const auto& [path, file] : now)
      if (path.starts_with(directory + "/")) names.push_back(path.substr(directory.size() + 1));
    return names;
  }

 private:
  struct Lock : troupe::FileLock {
    troupe::Status check() const override { return {}; }
    std::shared_ptr<bool> held = std::make_shared<bool>(true);
  };

  class Writer : public troupe::WritableFile {
   public:
    Writer(std::shared_ptr<SimulatedFiles> files, std::shared_ptr<File> file, std::string path)
        : files_(std::move(files)), file_(std::move(file)), path_(std::move(path)) {}
    troupe::Status append(const void* data, size_t bytes) override {
      TROUPE_RETURN_IF_ERROR(files_->step("append", path_));
      const auto* at = static_cast<const char*>(data);
      size_t n = bytes;
      if (files_->budget >= 0) n = std::min(n, static_cast<size_t>(files_->budget));
      if (files_->space >= 0) n = std::min(n, static_cast<size_t>(files_->space));
      file_->data.append(at, n);
      files_->spent += static_cast<int64_t>(n);
      if (files_->budget >= 0) files_->budget -= static_cast<int64_t>(n);
      if (files_->space >= 0) files_->space -= static_cast<int64_t>(n);
      if (n == bytes) return {};
      if (files_->dead()) return troupe::make_error(troupe::Code::kInternal, "dead");
      return troupe::make_error(troupe::Code::kResourceExhausted, "cannot write '{}': no space left", path_);
    }
    troupe::Status sync() override {
      TROUPE_RETURN_IF_ERROR(files_->step("sync", path_));
      file_->synced = file_->data.size();
      return {};
    }
    troupe::Status close() override { return files_->step("close", path_); }

   private:
    std::shared_ptr<SimulatedFiles> files_;
    std::shared_ptr<File> file_;
    std::string path_;
  };

  class Reader : public troupe::ReadableFile {
   public:
    Reader(std::shared_ptr<File> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
    uint64_t size() const override { return file_->data.size(); }
    troupe::Status read(uint64_t offset, void* out, size_t bytes) const override {
      if (offset + bytes > file_->data.size()) return troupe::make_error(troupe::Code::kDataLoss, "'{}' ends", path_);
      if (bytes > 0) std::memcpy(out, file_->data.data() + offset, bytes);
      return {};
    }

   private:
    std::shared_ptr<File> file_;
    std::string path_;
  };

  troupe::Status step(const std::string& operation, const std::string& path) {
    if (dead()) return troupe::make_error(troupe::Code::kInternal, "dead");
    ++spent;
    if (budget > 0) --budget;
    if (dead()) return troupe::make_error(troupe::Code::kInternal, "dead");
    log.push_back(operation + " " + path);
    if (operation == fail) {
      fail.clear();
      return troupe::make_error(troupe::Code::kInternal, "{} of '{}' failed", operation, path);
    }
    return {};
  }

  static std::shared_ptr<SimulatedFiles> copy(const Names& names, bool lose_unsynced) {
    auto out = std::make_shared<SimulatedFiles>();
    for (const auto& [path, file] : names) {
      auto twin = std::make_shared<File>(*file);
      if (lose_unsynced) twin->data.resize(twin->synced);
      twin->synced = twin->data.size();
      out->now[path] = twin;
    }
    out->durable = out->now;
    return out;
  }

  std::map<std::string, std::weak_ptr<bool>> locks_;
};
