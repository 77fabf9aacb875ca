// SPDX-License-Identifier: Apache-2.0
// Names in certificates, and what an authority issues.
#include "net/certificates.h"

#include <set>

#include "net/openssl.h"
#include "tests/net/keys.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using net::CertificateName;

TEST_CASE("the names of tasks and clients are URIs, and read back") {
  for (const CertificateName& name :
       {task_named("worker", 1), task_named("a.b-c_d", 12, "x"), client_named(), client_named("al.i-c_e")}) {
    CAPTURE(name.uri());
    CHECK(name.check().ok());
    CHECK(CertificateName::parse(name.uri()).value() == name);
  }
  CHECK(task_named("worker", 1).uri() == "troupe://mine/job:worker/task:1");
  CHECK(client_named().uri() == "troupe://mine/client");
  CHECK(client_named("alice").uri() == "troupe://mine/client/alice");
  for (const char* bad :
       {"", "troupe://", "troupe://mine", "troupe:///client", "troupe://mine/", "troupe://mine/client/",
        "troupe://mine/clients", "troupe://mine/client/a b", "troupe://mine/client/a/b", "troupe://mine/job:worker",
        "troupe://mine/job:worker/task:01", "troupe://mi ne/client", "troupe://mine/job:worker/task:1/",
        "https://mine/client", "troupe://mine/job:1/task:1", "TROUPE://mine/client", "troupe://mine/client\n"}) {
    CAPTURE(bad);
    const auto parsed = CertificateName::parse(bad);
    REQUIRE_FALSE(parsed.ok());
    CHECK_THAT(parsed.error().message, Contains("names neither a task nor a client"));
  }
}

TEST_CASE("an authority issues certificates with names, dates and random numbers") {
  const auto times = around_now();
  const auto authority = net::make_authority("mine", around_now(0, 1'000'000)).value();
  std::set<std::string> serials, keys;
  for (int i = 0; i < 20; ++i) {
    const auto made = net::issue_certificate(authority, task_named("worker", i), times).value();
    const auto validity = net::validity_of(made.certificate).value();
    CHECK(validity.from == times.from);
    CHECK(validity.to == times.to);
    const auto certificates = net::read_certificates(made.certificate);
    REQUIRE(certificates.size() == 1);
    X509* const one = certificates[0].get();
    CHECK(net::name_in(one).value() == task_named("worker", i));
    CHECK(X509_check_ca(one) == 0);
    CHECK((X509_get_key_usage(one) & KU_KEY_CERT_SIGN) == 0);
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(one);
    const std::string number(reinterpret_cast<const char*>(serial->data), static_cast<size_t>(serial->length));
    CHECK(number.size() == 20);
    serials.insert(number);
    keys.insert(made.key);
  }
  CHECK(serials.size() == 20);
  CHECK(keys.size() == 20);
  // It ends with its authority.
  const auto long_one = net::issue_certificate(authority, client_named(), around_now(0, 9'000'000)).value();
  CHECK(net::validity_of(long_one.certificate)->to == net::validity_of(authority.certificate)->to);
}

TEST_CASE("what an authority has issued is told from what it has not, also once it has expired") {
  const auto authority = net::make_authority("mine", around_now(0, 1'000'000)).value();
  const auto other = net::make_authority("mine", around_now()).value();
  const auto name = task_named("worker", 1);
  const auto made = net::issue_certificate(authority, name, {1, 2}).value();
  CHECK(net::check_issued(authority.certificate, made, name).ok());
  CHECK(net::check_issued(other.certificate + authority.certificate, made, name).ok());
  const auto fault = [&](const std::string& by, const net::KeyPair& kept, const CertificateName& whose) {
    const Status fits = net::check_issued(by, kept, whose);
    REQUIRE_FALSE(fits.ok());
    CHECK(fits.error().code == Code::kFailedPrecondition);
    return fits.error().message;
  };
  CHECK(fault(authority.certificate, made, task_named("worker", 2)) ==
        "has the certificate of troupe://mine/job:worker/task:1, not of troupe://mine/job:worker/task:2");
  CHECK(fault(other.certificate, made, name) == "has a certificate of another authority");
  CHECK(fault(authority.certificate, {made.certificate, other.key}, name) == "has no key of its certificate");
  CHECK(fault(authority.certificate, {made.certificate, "no PEM"}, name) == "has no key of its certificate");
  CHECK(fault(authority.certificate, {"no PEM", made.key}, name) == "has a certificate that cannot be read");
  CHECK(fault("no PEM", made, name) == "has an authority that cannot be read");
  CHECK_THAT(fault(authority.certificate, authority, name), Contains("has a certificate of another kind"));
}

TEST_CASE("what makes no certificate is an error") {
  const auto authority = net::make_authority("mine", around_now()).value();
  const auto other = net::make_authority("mine", around_now()).value();
  const auto message = [](const auto& result) {
    REQUIRE_FALSE(result.ok());
    return result.error().message;
  };
  CHECK_THAT(message(net::make_authority("a b", around_now())), Contains("'a b' is not a name of a cluster"));
  CHECK_THAT(message(net::make_authority("mine", {5, 5})), Contains("must end after it begins"));
  CHECK_THAT(message(net::issue_certificate(authority, {"mine", {}, "a b"}, around_now())), Contains("'a b'"));
  CHECK_THAT(message(net::issue_certificate(authority, task_named("1", 0), around_now())), Contains("'1'"));
  CHECK_THAT(message(net::issue_certificate({authority.certificate, other.key}, client_named(), around_now())),
             Contains("not that of its certificate"));
  CHECK_THAT(message(net::issue_certificate({"no PEM", authority.key}, client_named(), around_now())),
             Contains("cannot be read"));
  CHECK_THAT(message(net::issue_certificate({authority.certificate, "no PEM"}, client_named(), around_now())),
             Contains("cannot be read"));
  const auto over = net::make_authority("mine", around_now(7200, -3600)).value();
  CHECK_THAT(message(net::issue_certificate(over, client_named(), around_now())), Contains("ends at 2"));
  CHECK_THAT(message(net::validity_of("no PEM")), Contains("cannot be read"));
}
