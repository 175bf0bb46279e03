// What the frames of the rendezvous carry (frame.h has the kinds and their ways).
//
// Decoders take hostile bytes: DataLoss for what is no such message; every number that they return
// is in the range that its field says. Thread-safe: values.

#ifndef CRIA_COMM_RENDEZVOUS_MESSAGES_H_
#define CRIA_COMM_RENDEZVOUS_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/map_codec.h"

namespace cria::comm {

inline constexpr uint64_t kProtocolVersion = 1;
// Frames but kRecords and kMap are small.
inline constexpr uint32_t kSmallPayloadBytesMax = 16 << 10;
// Records are sent in pieces: one frame ends after this many bytes, and one record.
inline constexpr size_t kRecordsBytesTarget = 256 << 10;
inline constexpr uint32_t kRecordsPayloadBytesMax = 512 << 10;

// A rank presents itself to the master.
struct Hello {
  uint64_t version = kProtocolVersion;
  int world_size = 1;     // [1, kWorldSizeMax]
  int rank = 0;           // [0, kWorldSizeMax)
  uint64_t instance = 0;  // random: tells two processes with one rank from one that comes twice
  std::string job = {};
  std::string address = {};  // where its children find it; empty: where the master sees it
  int port = 0;              // [0, 65535]
  int64_t pid = 0;           // for messages
  int64_t time_left_ms = 0;  // until this rank's own deadline
};
std::string Encode(const Hello& hello);
StatusOr<Hello> DecodeHello(std::string_view payload);

// Its place in the tree.
struct Place {
  uint64_t session = 0;  // random: this run of the master
  int position = 1;      // [1, kWorldSizeMax]
  int degree = 2;        // [2, kTreeDegreeMax]
  // Of the parent; empty when it is the master, over the connection that is there.
  std::string parent_address = {};
  int parent_port = 0;
  int parent_rank = -1;
};
std::string Encode(const Place& place);
StatusOr<Place> DecodePlace(std::string_view payload);

// A child presents itself to its parent.
struct Join {
  uint64_t session = 0;
  int position = 1;
  int rank = 0;
};
std::string Encode(const Join& join);
StatusOr<Join> DecodeJoin(std::string_view payload);

// The records of a kRecords frame: their number, then one after another.
StatusOr<std::vector<RankRecord>> DecodeRecords(std::string_view payload, int count_max);

// An error on its way through the tree. Never decodes to OK.
std::string EncodeFailure(const Status& status);
Status DecodeFailure(std::string_view payload);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_MESSAGES_H_
