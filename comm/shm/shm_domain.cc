#include "comm/shm/shm_domain.h"

#include <utility>

#include "comm/shm/peers.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_transport.h"

namespace cria::comm {
namespace {

class SegmentBuffer : public SharedBuffer {
 public:
  SegmentBuffer(Segment* segment, int64_t offset, int64_t bytes)
      : segment_(segment), offset_(offset), bytes_(bytes) {}
  ~SegmentBuffer() override { segment_->Free(offset_); }

  void* data() const override { return segment_->mapping().base() + offset_; }
  int64_t bytes() const override { return bytes_; }

 private:
  Segment* const segment_;
  const int64_t offset_;
  const int64_t bytes_;
};

class Domain : public ShmDomain {
 public:
  explicit Domain(std::unique_ptr<Segment> segment)
      : segment_(std::move(segment)), peers_(segment_.get()) {}

  Status Listen() { return peers_.Listen(); }
  const std::string& socket_name() const override { return peers_.socket_name(); }
  void Start(int world_rank, std::shared_ptr<const RankMap> rank_map) override {
    peers_.Start(world_rank, std::move(rank_map));
  }

  StatusOr<std::unique_ptr<Transport>> OpenGroup(const GroupInfo& group,
                                                 FailureState* failure) override {
    auto transport = std::make_unique<ShmTransport>(segment_.get(), &peers_, group, failure);
    CRIA_RETURN_IF_ERROR(transport->Open());
    return std::unique_ptr<Transport>(std::move(transport));
  }

  StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int64_t bytes) override {
    CRIA_ASSIGN_OR_RETURN(const int64_t offset, segment_->Allocate(bytes));
    return std::unique_ptr<SharedBuffer>(
        std::make_unique<SegmentBuffer>(segment_.get(), offset, bytes));
  }

 private:
  const std::unique_ptr<Segment> segment_;
  Peers peers_;
};

}  // namespace

StatusOr<std::unique_ptr<ShmDomain>> ShmDomain::Create(const ShmOptions& options) {
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Segment::Create(options.segment_bytes));
  auto domain = std::make_unique<Domain>(std::move(segment));
  CRIA_RETURN_IF_ERROR(domain->Listen());
  return std::unique_ptr<ShmDomain>(std::move(domain));
}

}  // namespace cria::comm
