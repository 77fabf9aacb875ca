// SPDX-License-Identifier: Apache-2.0
// What is another loss than the last one, by a clock of the test's own.
#include "train/loss_record.h"

#include <catch2/catch.hpp>

using troupe::nn::Clock;
using troupe::nn::LossRecord;

namespace {

Clock::time_point at(int second) { return Clock::time_point(std::chrono::seconds(second)); }

}  // namespace

TEST_CASE("a loss is another one after an update, not before") {
  LossRecord record;
  record.update(at(1));
  CHECK(record.fail(5, true, at(2)));
  CHECK(record.since() == at(2));
  CHECK_FALSE(record.fail(5, true, at(3)));
  CHECK(record.since() == at(2));
  record.update(at(4));
  CHECK(record.last_update() == at(4));
  CHECK(record.fail(5, true, at(6)));
  CHECK(record.since() == at(6));
}

TEST_CASE("what fails again at its step, no task being lost, is the same loss until a later step fails") {
  LossRecord record;
  record.update(at(1));
  CHECK(record.fail(5, false, at(2)));
  record.update(at(3));
  CHECK_FALSE(record.fail(5, false, at(4)));
  record.update(at(5));
  CHECK_FALSE(record.fail(4, false, at(6)));
  CHECK(record.since() == at(2));
  record.update(at(7));
  CHECK(record.fail(6, false, at(8)));
  record.update(at(9));
  CHECK(record.fail(6, true, at(10)));
}

TEST_CASE("a failure that a lost task explains does not hide the next one at its step") {
  LossRecord record;
  record.update(at(1));
  CHECK(record.fail(5, false, at(2)));
  record.explain();
  record.update(at(3));
  CHECK(record.fail(5, false, at(4)));
  record.update(at(5));
  CHECK_FALSE(record.fail(5, false, at(6)));
}

TEST_CASE("after renew() what fails is another loss at whatever step") {
  LossRecord record;
  record.update(at(1));
  CHECK(record.fail(5, false, at(2)));
  record.renew(at(3));
  CHECK(record.fail(5, false, at(4)));
  CHECK(record.since() == at(4));
}
