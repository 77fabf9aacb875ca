// SPDX-License-Identifier: Apache-2.0
// NCCL behind gpu/collectives.h, by communicators that do not block, all of whose ranks are this process's.
//
// Nothing here has run on two cards yet: it is compiled against NCCL's header, and written after its documentation. To
// be seen on cards before it is believed: how long calls of a group take, what a lost card shows as, that abort ends
// kernels.
#include "gpu/nccl.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <algorithm>

#include "gpu/cuda/shared_library.h"

namespace troupe::gpu {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 0);

/// The functions that are called.
struct Nccl {
#define TROUPE_NCCL(F)      \
  F(ncclAllGather)          \
  F(ncclAllReduce)          \
  F(ncclBroadcast)          \
  F(ncclCommAbort)          \
  F(ncclCommGetAsyncError)  \
  F(ncclCommInitRankConfig) \
  F(ncclGetErrorString)     \
  F(ncclGetLastError)       \
  F(ncclGetUniqueId)        \
  F(ncclGetVersion)         \
  F(ncclGroupEnd)           \
  F(ncclGroupStart)         \
  F(ncclReduce)             \
  F(ncclReduceScatter)
#define TROUPE_DECLARE(name) decltype(&::name) name = nullptr;
  TROUPE_NCCL(TROUPE_DECLARE)
#undef TROUPE_DECLARE
  // Of newer versions; null where they are not there.
  decltype(&::ncclCommRevoke) revoke = nullptr;
  decltype(&::ncclCommShrink) shrink = nullptr;

  Status load() {
    TROUPE_ASSIGN(SharedLibrary library, SharedLibrary::open("NCCL", "libnccl.so.2"));
#define TROUPE_FIND(name) library.find(#name, name);
    TROUPE_NCCL(TROUPE_FIND)
#undef TROUPE_FIND
    TROUPE_RETURN_IF_ERROR(library.found_all());
    library.find_newer("ncclCommRevoke", revoke);
    library.find_newer("ncclCommShrink", shrink);
    int version = 0;
    TROUPE_RETURN_IF_ERROR(check(ncclGetVersion(&version), "ncclGetVersion"));
    if (version >= kOldest) return {};
    return make_error(Code::kUnavailable, "NCCL: version {} is too old, {} or later is needed", version, kOldest);
  }
  /// A call that is in progress has not failed.
  Status check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) const {
    if (result == ncclSuccess || result == ncclInProgress) return {};
    const char* const more = ncclGetLastError(comm);
    const bool says_more = more && *more;
    return make_error(Code::kInternal, "{}: {}{}{}", call, ncclGetErrorString(result), says_more ? ": " : "",
                      says_more ? more : "");
  }
};

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// The type of sums, and how many of it an element is.
std::pair<ncclDataType_t, size_t> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return {ncclInt8, 1};
    case DType::kInt32: return {ncclInt32, 1};
    case DType::kUInt32: return {ncclUint32, 1};
    case DType::kInt64: return {ncclInt64, 1};
    case DType::kUInt64: return {ncclUint64, 1};
    case DType::kFloat16: return {ncclFloat16, 1};
    case DType::kBFloat16: return {ncclBfloat16, 1};
    case DType::kFloat32: return {ncclFloat32, 1};
    case DType::kFloat64: return {ncclFloat64, 1};
    case DType::kComplex64: return {ncclFloat32, 2};
    case DType::kComplex128: return {ncclFloat64, 2};
    default: return {ncclUint8, 1};
  }
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<const Nccl> library, std::vector<int> cards)
      : library_(std::move(library)), cards_(std::move(cards)), comms_(cards_.size(), nullptr) {}

  /// Begins to make it. What fails is told by ready(), since ranks that were made are to be aborted, which may wait.
  void init(ncclUniqueId id) {
    failed_ = group("ncclCommInitRankConfig", [&](size_t rank) {
      ncclConfig_t config = configuration();
      if (cudaSetDevice(cards_[rank]) != cudaSuccess) return ncclUnhandledCudaError;
      return library_->ncclCommInitRankConfig(&comms_[rank], size(), id, static_cast<int>(rank), &config);
    });
  }

  std::span<const int> cards() const override { return cards_; }

  Result<bool> ready() override {
    TROUPE_RETURN_IF_ERROR(failed_);
    bool all = true;
    for (const ncclComm_t comm : comms_) {
      if (!comm) return make_error(Code::kInternal, "NCCL has no communicator of a rank");
      ncclResult_t state = ncclSuccess;
      TROUPE_RETURN_IF_ERROR(library_->check(library_->ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
      TROUPE_RETURN_IF_ERROR(library_->check(state, call_, comm));
      all = all && state == ncclSuccess;
    }
    return all;
  }

  Status launch(const Collective& c, std::span<Stream* const> streams) override {
    return group(to_string(c.kind), [&](size_t rank) {
      const auto stream = static_cast<cudaStream_t>(streams[rank]->native());  // makes its card the thread's
      return put(c, rank, stream);
    });
  }

  Status revoke() override {
    if (!library_->revoke) return too_old("ncclCommRevoke");
    call_ = "ncclCommRevoke";
    for (const ncclComm_t comm : comms_)
      if (comm) TROUPE_RETURN_IF_ERROR(library_->check(library_->revoke(comm, NCCL_REVOKE_DEFAULT), call_, comm));
    return {};
  }

  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> without) override {
    if (!library_->shrink) return too_old("ncclCommShrink");
    std::vector<int> excluded(without.begin(), without.end()), left, cards;
    for (int rank = 0; rank < size(); ++rank)
      if (std::ranges::find(excluded, rank) == excluded.end()) {
        left.push_back(rank);
        cards.push_back(cards_[static_cast<size_t>(rank)]);
      }
    auto rest = std::make_unique<NcclCommunicator>(library_, std::move(cards));
    rest->failed_ = rest->group("ncclCommShrink", [&](size_t rank) {
      ncclConfig_t config = configuration();
      if (cudaSetDevice(rest->cards_[rank]) != cudaSuccess) return ncclUnhandledCudaError;
      return library_->shrink(comms_[static_cast<size_t>(left[rank])], excluded.data(),
                              static_cast<int>(excluded.size()), &rest->comms_[rank], &config, NCCL_SHRINK_ABORT);
    });
    return std::unique_ptr<Communicator>(std::move(rest));
  }

  /// Not as a group, which would not wait.
  void abort() override {
    for (ncclComm_t& comm : comms_)
      if (comm) (void)library_->ncclCommAbort(std::exchange(comm, nullptr));
  }

 private:
  int size() const { return static_cast<int>(cards_.size()); }
  static Error too_old(const char* call) { return make_error(Code::kUnimplemented, "NCCL has no {}", call); }

  /// f(rank) for all ranks as one call.
  template <class F> Status group(const char* call, F&& f) {
    call_ = call;
    TROUPE_RETURN_IF_ERROR(library_->check(library_->ncclGroupStart(), "ncclGroupStart"));
    Status status;
    for (size_t rank = 0; rank < cards_.size() && status.ok(); ++rank)
      status = library_->check(f(rank), call, comms_[rank]);
    const Status ended = library_->check(library_->ncclGroupEnd(), call);
    return status.ok() ? ended : status;
  }

  ncclResult_t put(const Collective& c, size_t rank, cudaStream_t stream) const {
    const auto [type, width] = nccl_type(c.dtype);
    const auto [input, output] = c.ranks[rank];
    const ncclComm_t comm = comms_[rank];
    const auto elements = [width = width](int64_t count) { return static_cast<size_t>(count) * width; };
    const bool even = std::ranges::adjacent_find(c.counts, std::not_equal_to<>()) == c.counts.end();
    switch (c.kind) {
      case Collective::Kind::kAllReduce:
        return library_->ncclAllReduce(input, output, elements(c.counts[0]), type, ncclSum, comm, stream);
      case Collective::Kind::kReduceScatter:
        if (even) return library_->ncclReduceScatter(input, output, elements(c.counts[0]), type, ncclSum, comm, stream);
        return for_each_chunk(c, [&](int chunk, size_t begin, int64_t count) {
          const auto* from = static_cast<const char*>(input) + begin;
          void* const to = chunk == static_cast<int>(rank) ? output : nullptr;
          return library_->ncclReduce(from, to, elements(count), type, ncclSum, chunk, comm, stream);
        });
      case Collective::Kind::kAllGather:
        if (even) return library_->ncclAllGather(input, output, elements(c.counts[0]), type, comm, stream);
        return for_each_chunk(c, [&](int chunk, size_t begin, int64_t count) {
          return library_->ncclBroadcast(input, static_cast<char*>(output) + begin, elements(count), type, chunk, comm,
                                         stream);
        });
      case Collective::Kind::kBroadcast: {
        void* const to = static_cast<int>(rank) == c.root ? const_cast<void*>(input) : output;
        const void* const from = static_cast<int>(rank) == c.root ? input : output;
        return library_->ncclBroadcast(from, to, elements(c.counts[0]), type, c.root, comm, stream);
      }
    }
    return ncclInvalidArgument;
  }
  /// f(its rank, where it begins in bytes, its elements) for each chunk that has some, as far as that succeeds.
  template <class F> static ncclResult_t for_each_chunk(const Collective& c, F&& f) {
    size_t begin = 0;
    for (size_t chunk = 0; chunk < c.counts.size(); ++chunk) {
      const int64_t count = c.counts[chunk];
      if (count == 0) continue;
      const ncclResult_t result = f(static_cast<int>(chunk), begin, count);
      if (result != ncclSuccess && result != ncclInProgress) return result;
      begin += static_cast<size_t>(count) * size_of(c.dtype);
    }
    return ncclSuccess;
  }

  const std::shared_ptr<const Nccl> library_;
  const std::vector<int> cards_;
  std::vector<ncclComm_t> comms_;  // by rank; NCCL keeps their addresses while it makes them
  const char* call_ = "";          // what is in progress
  Status failed_;                  // to be made
};

class NcclCollectives final : public Collectives {
 public:
  explicit NcclCollectives(std::shared_ptr<const Nccl> library) : library_(std::move(library)) {}
  Result<std::unique_ptr<Communicator>> make(std::span<const int> cards) override {
    ncclUniqueId id;
    TROUPE_RETURN_IF_ERROR(library_->check(library_->ncclGetUniqueId(&id), "ncclGetUniqueId"));
    auto out = std::make_unique<NcclCommunicator>(library_, std::vector<int>(cards.begin(), cards.end()));
    out->init(id);
    return std::unique_ptr<Communicator>(std::move(out));
  }

 private:
  const std::shared_ptr<const Nccl> library_;
};

}  // namespace

Result<std::shared_ptr<Collectives>> make_nccl() {
  auto library = std::make_shared<Nccl>();
  TROUPE_RETURN_IF_ERROR(library->load());
  return std::shared_ptr<Collectives>(std::make_shared<NcclCollectives>(std::move(library)));
}

}  // namespace troupe::gpu

#else

namespace troupe::gpu {

Result<std::shared_ptr<Collectives>> make_nccl() {
  return make_error(Code::kUnavailable, "NCCL: Troupe was built without its header");
}

}  // namespace troupe::gpu

#endif
