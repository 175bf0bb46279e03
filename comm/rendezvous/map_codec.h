// The rank map and its records as bytes: small, versioned, checksummed, the same bytes for the same
// map on any machine, so that the checksum is the map's digest.
//
//   const std::string bytes = EncodeRankMap(map);
//   CRIA_ASSIGN_OR_RETURN(const RankMap same, DecodeRankMap(bytes, world_size));
//
// Everybody gets the whole map, so its bytes times the number of ranks cross the network: each
// distinct host and address is written once, less the start that it shares with the one before;
// the columns (host, address, port, pid) are differences between neighbours, as runs where that is
// shorter. Ranks placed in blocks or round robin, with consecutive ports and pids, take about one
// byte each; random ports and pids add four, random socket names half a byte a hexadecimal digit.
//
//   magic, version, number of ranks, hosts, addresses, host and address of each rank, ports, pids,
//   sockets, XXH3-64 of all that
//
// Thread-safe. Bytes may be hostile: DataLoss says what is wrong, and memory stays proportional to
// the world size that the reader expects.

#ifndef CRIA_COMM_RENDEZVOUS_MAP_CODEC_H_
#define CRIA_COMM_RENDEZVOUS_MAP_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/rendezvous/wire.h"

namespace cria::comm {

// The longest texts of a record.
inline constexpr size_t kHostBytesMax = 512;
inline constexpr size_t kAddressBytesMax = 128;
inline constexpr size_t kShmSocketBytesMax = 128;

// InvalidArgument when a record cannot be sent: a text too long, a port out of range.
Status CheckRankInfo(const RankInfo& info);

// All records pass CheckRankInfo.
std::string EncodeRankMap(const RankMap& map);
StatusOr<RankMap> DecodeRankMap(std::string_view bytes, int world_size);

// The checksum at the end of an encoded map.
uint64_t DigestOfEncodedMap(std::string_view bytes);

// One record on its way to the master.
struct RankRecord {
  int rank = 0;
  RankInfo info = {};
};
void WriteRecord(const RankRecord& record, WireWriter* writer);
// The reader is not ok() afterwards when the bytes are no record.
RankRecord ReadRecord(WireReader* reader);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_MAP_CODEC_H_
