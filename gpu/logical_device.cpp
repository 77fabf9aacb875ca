// SPDX-License-Identifier: Apache-2.0
#include "gpu/logical_device.h"

#include <algorithm>
#include <condition_variable>

namespace troupe::gpu {

LogicalDevice::LogicalDevice(std::shared_ptr<Runtime> runtime, int card, Completions& completions,
                             std::shared_ptr<Allocator> pinned)
    : runtime_(std::move(runtime)), completions_(completions), pinned_(std::move(pinned)), events_(*runtime_, card),
      timed_events_(std::make_shared<TimedEvents>(runtime_, card)) {}

LogicalDevice::~LogicalDevice() {
  // Their end waits for copies that could not be watched, before what these use goes.
  in_stream_.reset();
  out_stream_.reset();
}

Result<std::unique_ptr<LogicalDevice>> LogicalDevice::make(std::shared_ptr<Runtime> runtime, const Options& options,
                                                           std::shared_ptr<Blas> blas, std::shared_ptr<Dnn> dnn,
                                                           std::shared_ptr<Allocator> pinned,
                                                           Completions& completions) {
  std::unique_ptr<LogicalDevice> out(new LogicalDevice(runtime, options.card, completions, std::move(pinned)));
  TROUPE_ASSIGN(out->compute_stream_, runtime->make_stream(options.card));
  TROUPE_ASSIGN(out->in_stream_, runtime->make_stream(options.card, true));
  TROUPE_ASSIGN(out->out_stream_, runtime->make_stream(options.card, true));
  TROUPE_ASSIGN(out->memory_,
                DeviceMemory::make(runtime, out->compute_stream_, {.card = options.card, .limit = options.memory}));
  for (Stream* stream : {out->compute_stream_.get(), out->in_stream_.get(), out->out_stream_.get()})
    TROUPE_RETURN_IF_ERROR(completions.look_after(*stream));
  out->blas_ = std::move(blas);
  out->dnn_ = std::move(dnn);
  out->compute_.reset(new Compute{
      .stream = *out->compute_stream_,
      .card = runtime->cards()[static_cast<size_t>(options.card)],
      .blas = out->blas_.get(),
      .dnn = out->dnn_.get(),
      .allocator = out->memory_->in_stream_order(),
      .tf32 = options.tf32,
      .upload = [device = out.get()](const Tensor& value) { return device->copy_in(value); },
      .holds = [device = out.get()](const Tensor& value) { return device->holds(value); },
  });
  return out;
}

bool LogicalDevice::holds(const Tensor& value) const {
  return value.space() == Space::kGpu && memory_->holds(value.address());
}

Status LogicalDevice::order(Stream& before, Stream& after) {
  TROUPE_ASSIGN(std::unique_ptr<Event> event, events_.take());
  Status status = before.record(*event);
  if (status.ok()) status = after.wait(*event);
  events_.give_back(std::move(event));
  return status;
}

Result<Tensor> LogicalDevice::allocate_for_copy(DType dtype, const Shape& shape) {
  auto there = Tensor::make(dtype, shape, memory_->for_transfers());
  if (there.ok() || there.error().code != Code::kResourceExhausted) return there;
  // Memory in the order of the compute stream, behind what that does with it.
  TROUPE_ASSIGN(there, Tensor::make(dtype, shape, memory_->in_stream_order()));
  TROUPE_RETURN_IF_ERROR(order(*compute_stream_, *in_stream_));
  return there;
}

Error LogicalDevice::reason(Error error) {
  // Libraries tell of a lost card by errors of their own.
  if (error.code != Code::kResourceExhausted && error.code != Code::kInternal) return error;
  auto event = events_.take();
  if (!event.ok()) return event.error().code == Code::kUnavailable ? std::move(event.error()) : error;
  Status alive = compute_stream_->record(**event);
  events_.give_back(std::move(*event));
  return !alive.ok() && alive.error().code == Code::kUnavailable ? std::move(alive.error()) : error;
}

Status LogicalDevice::copy(Stream& stream, Tensor& to, const Tensor& from, TimedWork* timed) {
  if (timed) timed->begin(stream);
  Status status = stream.copy(to.mutable_address(), from.address(), from.bytes());
  if (timed) timed->end(stream);
  return status;
}

Result<Tensor> LogicalDevice::copy_in(const Tensor& value, TimedWork* timed) {
  auto allocated = allocate_for_copy(value.dtype(), value.shape());
  if (!allocated.ok()) return reason(std::move(allocated.error()));
  Tensor there = std::move(*allocated);
  if (value.bytes() == 0) return there;
  Tensor from = value;
  if (value.space() == Space::kHost) {
    TROUPE_ASSIGN(from, value.clone(pinned_));
  } else {
    const auto owner = std::ranges::find_if(others_, [&](const LogicalDevice* other) { return other->holds(value); });
    if (owner == others_.end())
      return make_error(Code::kInternal, "a value is in the memory of no device of its engine");
    TROUPE_RETURN_IF_ERROR((*owner)->order(*(*owner)->compute_stream_, *in_stream_));
  }
  TROUPE_RETURN_IF_ERROR(copy(*in_stream_, there, from, timed));
  Status ordered = order(*in_stream_, *compute_stream_);
  watch(*in_stream_, {from, there}, [](Status) {});
  TROUPE_RETURN_IF_ERROR(std::move(ordered));
  return there;
}

Status LogicalDevice::copy_out(const Tensor& value, std::function<void(Result<Tensor>)> done, TimedWork* timed) {
  TROUPE_ASSIGN(Tensor here, Tensor::make(value.dtype(), value.shape(), pinned_));
  if (value.bytes() == 0) {
    mark([here, done = std::move(done)](Status status) {
      done(status.ok() ? Result<Tensor>(here) : Result<Tensor>(std::move(status.error())));
    });
    return {};
  }
  TROUPE_RETURN_IF_ERROR(order(*compute_stream_, *out_stream_));
  TROUPE_RETURN_IF_ERROR(copy(*out_stream_, here, value, timed));
  watch(*out_stream_, {value, here}, [here, done = std::move(done)](Status status) {
    done(status.ok() ? Result<Tensor>(here) : Result<Tensor>(std::move(status.error())));
  });
  return {};
}

void LogicalDevice::watch(Stream& stream, std::vector<Tensor> used, std::function<void(Status)> done) {
  const auto kept = std::make_shared<std::vector<Tensor>>(std::move(used));
  completions_.watch(stream, [this, kept, done = std::move(done)](Status status) {
    if (!status.ok() && status.error().code != Code::kUnavailable) {
      // It could not be watched: nobody will say when the stream is done with them.
      const std::lock_guard lock(mutex_);
      unwatched_.insert(unwatched_.end(), kept->begin(), kept->end());
    }
    kept->clear();  // before somebody takes the answer for the end
    done(std::move(status));
  });
}

Result<Tensor> LogicalDevice::fetch(const Tensor& value) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<Tensor>> result;
  };
  const auto waiting = std::make_shared<Waiting>();
  TROUPE_RETURN_IF_ERROR(copy_out(value, [waiting](Result<Tensor> result) {
    const std::lock_guard lock(waiting->mutex);
    waiting->result = std::move(result);
    waiting->changed.notify_all();
  }));
  std::unique_lock lock(waiting->mutex);
  waiting->changed.wait(lock, [&] { return waiting->result.has_value(); });
  return std::move(*waiting->result);
}

void LogicalDevice::mark(std::function<void(Status)> done) { completions_.watch(*compute_stream_, std::move(done)); }

}  // namespace troupe::gpu
