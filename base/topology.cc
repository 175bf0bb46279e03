#include "base/topology.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/config.h"

namespace cria {
namespace {

constexpr double kHostsMax = 1e6;
constexpr double kMicrosecondsMax = 1e6;
constexpr double kGigabytesMax = 1e6;
constexpr double kGigabytesMin = 1e-6;

void VisitLink(ConfigVisitor& v, std::string_view key, ClusterLink* link) {
  v.Section(key, [link](ConfigVisitor& v) {
    v.Field("latency_us", &link->latency_us, {.min = 0, .max = kMicrosecondsMax});
    v.Field("gigabytes_per_s", &link->gigabytes_per_s,
            {.min = kGigabytesMin, .max = kGigabytesMax});
    v.Field("message_us", &link->message_us, {.min = 0, .max = kMicrosecondsMax});
  });
}

// Keys of the file itself, which no tier may be called.
constexpr std::array<std::string_view, 9> kKeys = {
    "hosts", "host_names",           "ranks_per_host",         "cores_per_host", "inside",
    "link",  "host_gigabytes_per_s", "reduce_gigabytes_per_s", "tiers"};

bool IsKey(const std::string& name) {
  return std::find(kKeys.begin(), kKeys.end(), name) != kKeys.end();
}

void VisitCluster(ConfigVisitor& v, Cluster* cluster) {
  v.Field("hosts", &cluster->hosts, {.min = 1, .max = kHostsMax});
  v.Field("host_names", &cluster->host_names);
  v.Field("ranks_per_host", &cluster->ranks_per_host, {.min = 1, .max = 1024});
  v.Field("cores_per_host", &cluster->cores_per_host, {.min = 0, .max = 65536});
  VisitLink(v, "inside", &cluster->inside);
  VisitLink(v, "link", &cluster->link);
  v.Field("host_gigabytes_per_s", &cluster->host_gigabytes_per_s, {.min = 0, .max = kGigabytesMax});
  v.Field("reduce_gigabytes_per_s", &cluster->reduce_gigabytes_per_s,
          {.min = kGigabytesMin, .max = kGigabytesMax});
  std::vector<std::string> names;
  v.Field("tiers", &names);
  for (const std::string& name : names) {
    ClusterTier tier{.name = name};
    if (!IsKey(name)) {
      v.Section(name, [&tier](ConfigVisitor& v) {
        v.Field("hosts", &tier.hosts, {.min = 1, .max = kHostsMax, .required = true});
        v.Field("oversubscription", &tier.oversubscription, {.min = 0.01, .max = 1000});
        v.Field("latency_us", &tier.latency_us, {.min = 0, .max = kMicrosecondsMax});
      });
    }
    cluster->tiers.push_back(std::move(tier));
  }
}

// What the fields' limits cannot say.
Status CheckTogether(const Cluster& cluster, const std::string& file) {
  for (size_t i = 0; i < cluster.tiers.size(); ++i) {
    const ClusterTier& tier = cluster.tiers[i];
    if (IsKey(tier.name)) {
      return InvalidArgumentError(file, ": tiers: no tier can be called \"", tier.name, "\"");
    }
    for (size_t below = 0; below < i; ++below) {
      if (cluster.tiers[below].name == tier.name) {
        return InvalidArgumentError(file, ": tiers: \"", tier.name, "\" stands twice");
      }
    }
    const int64_t below = i == 0 ? 1 : cluster.tiers[i - 1].hosts;
    if (tier.hosts % below != 0 || tier.hosts < below) {
      return InvalidArgumentError(file, ": ", tier.name, ".hosts is ", tier.hosts,
                                  ", no multiple of the ", below, " of ",
                                  cluster.tiers[i - 1].name);
    }
  }
  return OkStatus();
}

// "llama3_24k" of "configs/clusters/llama3_24k.yaml".
std::string NameOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  const std::string base = slash == std::string::npos ? file : file.substr(slash + 1);
  return base.substr(0, base.find('.'));
}

StatusOr<Cluster> Read(const ConfigFile& file, const std::string& name) {
  Cluster cluster;
  // The visit may be repeated by the reader: it starts from nothing each time.
  CRIA_RETURN_IF_ERROR(file.Read([&cluster](ConfigVisitor& v) {
    cluster = Cluster();
    VisitCluster(v, &cluster);
  }));
  if (!cluster.host_names.empty()) {
    const auto num_names = static_cast<int64_t>(cluster.host_names.size());
    if (file.Has("hosts") && cluster.hosts != num_names) {
      return InvalidArgumentError(name, ": hosts is ", cluster.hosts, ", but host_names has ",
                                  num_names);
    }
    cluster.hosts = num_names;
  }
  CRIA_RETURN_IF_ERROR(CheckTogether(cluster, name));
  cluster.name = NameOf(name);
  return cluster;
}

}  // namespace

StatusOr<Cluster> ReadCluster(const std::string& file) {
  CRIA_ASSIGN_OR_RETURN(const std::string path, FindConfigFile("clusters", file));
  CRIA_ASSIGN_OR_RETURN(const ConfigFile config, ConfigFile::FromFile(path));
  return Read(config, path);
}

StatusOr<Cluster> ParseCluster(const std::string& text, const std::string& name) {
  CRIA_ASSIGN_OR_RETURN(const ConfigFile config, ConfigFile::FromText(text, name));
  return Read(config, name);
}

}  // namespace cria
