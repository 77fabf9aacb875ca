// SPDX-License-Identifier: Apache-2.0
// The subcommand cluster keys: an authority, and a folder with certificate and key for each process of a cluster.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/system_code.h"
#include "cli/commands.h"
#include "net/certificates.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"

namespace troupe {
namespace {

constexpr int64_t kDay = 86'400;
constexpr int kAuthorityDays = 3650;
/// Clocks of machines differ.
constexpr int64_t kBefore = 3600;

struct KeysArguments {
  programs::ClusterFlags cluster;
  std::string out;
  int days = 365;
  std::vector<std::string> clients;
};

Error cannot(const char* what, const std::string& path, int error) {
  return make_error(code_of_system_error(error), "cannot {} '{}': {}", what, path,
                    std::generic_category().message(error));
}

/// A file that was not there before.
Status write_new(const std::string& path, std::string_view bytes, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return cannot("make", path, errno);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) bytes.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR) error = errno;
  }
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return {};
  unlink(path.c_str());
  return cannot("write", path, error);
}

Result<std::string> read_pem(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  std::string out(1 << 20, '\0');
  if (file) out.resize(std::fread(out.data(), 1, out.size(), file.get()));
  if (!file || std::ferror(file.get())) return cannot("read", path, errno);
  return out;
}

bool exists(const std::string& path) {
  struct stat ignored;
  return lstat(path.c_str(), &ignored) == 0;
}

std::string date(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  std::tm parts = {};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

class Keys {
 public:
  Keys(std::string folder, net::ClusterSpec spec, int days)
      : folder_(std::move(folder)), spec_(std::move(spec)), days_(days) {}

  Status make(const std::vector<std::string>& clients) {
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return cannot("make the folder", folder_, errno);
    std::vector<std::pair<std::string, net::CertificateName>> all;
    for (const net::TaskId& task : spec_.tasks())
      all.push_back({fmt::format("{}-{}", task.job, task.task), {spec_.name(), task}});
    all.push_back({"client", {spec_.name(), {}}});
    for (const std::string& client : clients) all.push_back({"client-" + client, {spec_.name(), {}, client}});
    std::map<std::string, net::CertificateName> whose;
    for (const auto& [name, who] : all)
      if (const auto& first = whose.try_emplace(name, who).first->second; first != who)
        return invalid_argument("{} and {} would both have the folder '{}'", first.uri(), who.uri(), path(name));
    TROUPE_RETURN_IF_ERROR(find_authority());
    for (const auto& [name, who] : all) TROUPE_RETURN_IF_ERROR(add(name, who));
    return {};
  }

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// Reads the authority, or makes one where there is none.
  Status find_authority() {
    const std::string certificate = path(programs::kCaFile), key = path("ca.key");
    const bool has_certificate = exists(certificate), has_key = exists(key);
    if (has_certificate != has_key)
      return make_error(Code::kFailedPrecondition, "'{}' has {} without {}: certificates need both", folder_,
                        has_certificate ? programs::kCaFile : "ca.key", has_certificate ? "ca.key" : programs::kCaFile);
    if (has_certificate) {
      TROUPE_ASSIGN(authority_.certificate, read_pem(certificate));
      TROUPE_ASSIGN(authority_.key, read_pem(key));
    } else {
      TROUPE_ASSIGN(authority_,
                    net::make_authority(spec_.name(), {now_ - kBefore, now_ + std::max(days_, kAuthorityDays) * kDay}));
      TROUPE_RETURN_IF_ERROR(write_new(key, authority_.key, 0600));
      TROUPE_RETURN_IF_ERROR(write_new(certificate, authority_.certificate, 0644));
    }
    return tell(programs::kCaFile, authority_.certificate, has_certificate ? "authority, kept" : "authority, new");
  }

  /// The folder of one process, unless there is one.
  Status add(const std::string& name, const net::CertificateName& who) {
    const std::string at = path(name), unfinished = at + ".new";
    if (exists(at)) {
      TROUPE_ASSIGN(const std::string certificate, check_kept(at, who));
      return tell(name, certificate, who.uri() + ", kept");
    }
    TROUPE_ASSIGN(const auto made, net::issue_certificate(authority_, who, {now_ - kBefore, now_ + days_ * kDay}));
    std::error_code ignored;
    std::filesystem::remove_all(unfinished, ignored);  // of a run that was cut off
    if (mkdir(unfinished.c_str(), 0700) != 0) return cannot("make the folder", unfinished, errno);
    const std::string in = unfinished + "/";
    TROUPE_RETURN_IF_ERROR(write_new(in + programs::kCaFile, authority_.certificate, 0644));
    TROUPE_RETURN_IF_ERROR(write_new(in + programs::kKeyFile, made.key, 0600));
    TROUPE_RETURN_IF_ERROR(write_new(in + programs::kCertificateFile, made.certificate, 0644));
    if (rename(unfinished.c_str(), at.c_str()) != 0) return cannot("make the folder", at, errno);
    return tell(name, made.certificate, who.uri() + ", new");
  }

  /// The certificate in a folder that was there. Errors: it is not what would be made now, though perhaps older.
  Result<std::string> check_kept(const std::string& folder, const net::CertificateName& who) const {
    net::KeyPair kept;
    std::string authority;
    const auto in = folder + "/";
    TROUPE_ASSIGN(kept.certificate, read_pem(in + programs::kCertificateFile));
    TROUPE_ASSIGN(kept.key, read_pem(in + programs::kKeyFile));
    TROUPE_ASSIGN(authority, read_pem(in + programs::kCaFile));
    for (const std::string& by : {authority_.certificate, authority})
      if (const Status fits = net::check_issued(by, kept, who); !fits.ok())
        return make_error(fits.error().code, "'{}' {}: remove it, and run this again to make it anew", folder,
                          fits.error().message);
    return std::move(kept.certificate);
  }

  Status tell(const std::string& name, const std::string& certificate, const std::string& what) const {
    const auto validity = net::validity_of(certificate);
    if (!validity.ok()) return make_error(validity.error().code, "'{}': {}", path(name), validity.error().message);
    programs::print("{}: {}, {} {}\n", name, what, validity->to > now_ ? "until" : "EXPIRED at", date(validity->to));
    return programs::flush();
  }

  const std::string folder_;
  const net::ClusterSpec spec_;
  const int days_;
  const int64_t now_ =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  net::KeyPair authority_;
};

Status run(const KeysArguments& o) {
  TROUPE_ASSIGN(auto config, net::ClusterConfig::parse(o.cluster.options().spec));
  return Keys(o.out, std::move(config.cluster), o.days).make(o.clients);
}

}  // namespace

void add_cluster_keys(CLI::App& cluster, Job& job) {
  auto o = std::make_shared<KeysArguments>();
  CLI::App& keys = *cluster.add_subcommand(
      "keys",
      "Makes certificates and keys for TLS: an authority, and a folder for each task and for clients, which --tls "
      "takes. What is there already is kept");
  o->cluster.add_list_to(keys);
  keys.add_option("--out", o->out, "The folder that has or gets them: ca.pem, ca.key, worker-0, ..., client")
      ->type_name("DIR")
      ->required();
  keys.add_option("--days", o->days, "How long new certificates hold; a new authority ten years, or as long")
      ->check(CLI::Range(1, 36'500))
      ->capture_default_str();
  keys.add_option("--client", o->clients, "Also a certificate for the client of that name, in client-NAME")
      ->type_name("NAME");
  keys.footer(
      "ca.key makes new certificates: keep it apart. A process needs its own folder alone. To renew a certificate, "
      "remove\nits folder and run this again.\n"
      "Exit status: 0 done; 1 failed; 2 a wrong command line, or environment.");
  keys.callback([o, &job] {
    if (!o->cluster.given())
      throw CLI::ValidationError("keys", "which cluster? --cluster and TROUPE_CLUSTER say nothing");
    for (const std::string& client : o->clients)
      if (const Status fault = net::CertificateName{"x", {}, client}.check(); !fault.ok() || client.empty())
        throw CLI::ValidationError("--client", client.empty() ? "a client needs a name" : fault.error().message);
    job = [o] { return run(*o); };
  });
}

}  // namespace troupe
