// Agents, their tokens and quotas.
//
// A token is "sluice_ID_SECRET": the agent's id, and 32 random bytes in hexadecimal digits. The database keeps a salt and the
// BLAKE2b hash of the secret keyed with it. A secret of 256 random bits needs no slow hash.

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/database/standings.h"
#include "store/error.h"
#include "store/folder/sodium.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr size_t kSecretDigits = 64;
constexpr std::string_view kTokenPrefix = "sluice_";
constexpr Time kDay = 24LL * 3600 * 1000000;

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

std::string hash_of_secret(std::string_view secret, const std::string& salt) {
  std::string hash(crypto_generichash_BYTES, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
                     reinterpret_cast<const unsigned char*>(salt.data()), salt.size());
  return hash;
}

struct Token {
  std::string secret = hexadecimal(random_bytes(kSecretDigits / 2));
  std::string salt = random_bytes(crypto_generichash_KEYBYTES);
  std::string hash() const { return hash_of_secret(secret, salt); }
  std::string text(int64_t agent) const { return fmt::format("{}{}_{}", kTokenPrefix, agent, secret); }
};

void check_agent_name(const std::string& name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool allowed = std::all_of(name.begin(), name.end(), [&](char c) { return is_plain(c) || c == '-' || c == '_'; });
  if (!name.empty() && name.size() <= Limits::kAgentName && allowed && is_plain(name.front())) return;
  throw StoreError(ErrorKind::kInvalid, fmt::format("\"{}\" cannot be an agent's name", name),
                   fmt::format("up to {} lower-case letters, digits, - and _, a letter or digit first", Limits::kAgentName));
}

void check_quota(int64_t quota) {
  if (quota < 0) throw StoreError(ErrorKind::kInvalid, "a quota cannot be negative");
}

constexpr const char* kAgentColumns = "SELECT id, name, role, quota, created, token_salt, token_hash FROM agents";

Agent read_agent(const Query& query) {
  Agent agent;
  agent.id = query.integer(0);
  agent.name = query.text(1);
  agent.role = query.text(2) == "admin" ? Role::kAdmin : Role::kAgent;
  agent.quota = query.integer(3);
  agent.created = query.integer(4);
  return agent;
}

}  // namespace

NewAgent Store::create_agent(const std::string& name, Role role, int64_t quota) {
  check_agent_name(name);
  check_quota(quota);
  const Token token;
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  if (find_agent(name)) throw StoreError(ErrorKind::kConflict, fmt::format("there is an agent \"{}\" already", name));
  Agent agent{0, name, role, quota, options_.clock()};
  Query(*database_, "INSERT INTO agents (name, role, token_salt, token_hash, quota, created) VALUES (?, ?, ?, ?, ?, ?)", name,
        role == Role::kAdmin ? "admin" : "agent", Blob{token.salt}, Blob{token.hash()}, quota, agent.created)
      .run();
  agent.id = database_->last_id();
  transaction.commit();
  return {agent, token.text(agent.id)};
}

std::optional<Agent> Store::find_agent(const std::string& name) {
  Query query(*database_, fmt::format("{} WHERE name = ?", kAgentColumns), name);
  if (!query.step()) return std::nullopt;
  return read_agent(query);
}

Agent Store::required_agent(const std::string& name) {
  const auto agent = find_agent(name);
  if (!agent) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no agent \"{}\"", name));
  return *agent;
}

std::optional<Agent> Store::agent_of_token(const std::string& token) {
  std::string_view rest = token;
  if (rest.substr(0, kTokenPrefix.size()) != kTokenPrefix) return std::nullopt;
  rest.remove_prefix(kTokenPrefix.size());
  int64_t id = 0;
  const auto number = std::from_chars(rest.data(), rest.data() + rest.size(), id);
  rest.remove_prefix(static_cast<size_t>(number.ptr - rest.data()));
  if (number.ec != std::errc() || rest.size() != kSecretDigits + 1 || rest.front() != '_') return std::nullopt;
  rest.remove_prefix(1);

  Query query(*database_, fmt::format("{} WHERE id = ?", kAgentColumns), id);
  const bool known = query.step();
  // An unknown id costs the same hash as a known one.
  const std::string salt = known ? query.blob(5) : std::string(crypto_generichash_KEYBYTES, '\0');
  const std::string kept = known ? query.blob(6) : std::string(crypto_generichash_BYTES, '\0');
  const std::string hash = hash_of_secret(rest, salt);
  const bool same = kept.size() == hash.size() && sodium_memcmp(kept.data(), hash.data(), hash.size()) == 0;
  if (!known || !same) return std::nullopt;
  return read_agent(query);
}

std::string Store::replace_token(const std::string& name) {
  const Token token;
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Agent agent = required_agent(name);
  Query(*database_, "UPDATE agents SET token_salt = ?, token_hash = ? WHERE id = ?", Blob{token.salt}, Blob{token.hash()},
        agent.id)
      .run();
  transaction.commit();
  return token.text(agent.id);
}

void Store::set_quota(const std::string& name, int64_t quota) {
  check_quota(quota);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  Query(*database_, "UPDATE agents SET quota = ? WHERE id = ?", quota, required_agent(name).id).run();
  transaction.commit();
}

Quota Store::quota_of(const std::string& name) {
  const Agent agent = required_agent(name);
  const Time since = options_.clock() - kDay;
  Query query(*database_,
              "SELECT (SELECT COUNT(*) FROM submissions WHERE agent = ? AND created > ? "
              "AND id NOT IN (SELECT id FROM submissions WHERE automatic = 1)) + "
              "(SELECT COUNT(*) FROM resubmissions WHERE agent = ? AND time > ?) + "
              "(SELECT COUNT(*) FROM trials WHERE agent = ? AND created > ? AND seed IS NOT NULL) + "
              "(SELECT COUNT(*) FROM confirmations WHERE agent = ? AND created > ? AND automatic = 0 "
              "AND submission NOT IN (SELECT id FROM submissions WHERE automatic = 1))",
              agent.id, since, agent.id, since, agent.id, since, agent.id, since);
  query.step();
  return {agent.quota, query.integer(0)};
}

void Store::require_quota(const Agent& agent, int64_t spent) {
  if (agent.role == Role::kAdmin) return;
  const Quota quota = quota_of(agent.name);
  if (quota.used < quota.limit) return;
  if (spent > 0 && spent >= quota.limit) {
    throw StoreError(
        ErrorKind::kInvalid,
        fmt::format("this takes more than all {} submissions, trials with seeds and confirmations that {} has in 24 hours",
                    quota.limit, agent.name),
        "send it in parts, or ask an admin for a larger quota");
  }
  throw StoreError(
      ErrorKind::kQuota,
      fmt::format("{} has used its {} submissions, trials with seeds and confirmations of 24 hours", agent.name, quota.limit),
      "wait, or ask an admin for a larger quota");
}

void Store::require_room(const Agent& agent, const char* table, int64_t count) {
  if (agent.role == Role::kAdmin) return;
  Query query(*database_, fmt::format("SELECT COUNT(*) FROM {} WHERE agent = ? AND created > ?", table), agent.id,
              options_.clock() - kDay);
  query.step();
  if (query.integer(0) + count <= agent.quota) return;
  if (count > std::max<int64_t>(agent.quota, 1)) {
    throw StoreError(
        ErrorKind::kInvalid,
        fmt::format("{} {} are more than the {} that {} may make in 24 hours", count, table, agent.quota, agent.name),
        "send them in parts, or ask an admin for a larger quota");
  }
  throw StoreError(ErrorKind::kQuota,
                   fmt::format("{} has made {} {} in 24 hours and may make {}", agent.name, query.integer(0), table, agent.quota),
                   "wait, or ask an admin for a larger quota");
}

std::vector<AgentSummary> Store::agents() {
  const TimeLimit limit(*database_, kMostSearch);
  std::vector<AgentSummary> agents;
  Query query(*database_,
              fmt::format("SELECT a.name, a.role, a.created, COUNT(s.id), coalesce(SUM(s.status = 'passed'), 0), "
                          "MAX(CASE WHEN s.status = 'passed' AND {} THEN coalesce(mc.value, m.value) END) "
                          "FROM agents a LEFT JOIN submissions s ON s.agent = a.id "
                          "AND s.id NOT IN (SELECT id FROM submissions WHERE automatic = 1) {} LEFT JOIN metrics m "
                          "ON m.evaluation = s.judged AND m.name = 'score' AND m.task = '' AND m.length = 0 LEFT JOIN metrics mc "
                          "ON mc.evaluation = c.evaluation AND mc.name = 'score' AND mc.task = '' AND mc.length = 0 "
                          "GROUP BY a.id ORDER BY a.name",
                          kStands, kJoinConfirmed));
  while (query.step()) {
    agents.push_back({query.text(0), query.text(1) == "admin" ? Role::kAdmin : Role::kAgent, query.integer(2), query.integer(3),
                      query.integer(4), query.optional_real(5)});
  }
  return agents;
}

}  // namespace sluice::store
