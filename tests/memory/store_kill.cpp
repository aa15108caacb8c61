#include "tests/memory/store_kill.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <vector>

#include "memory/ladder.h"
#include "memory/reconcile.h"

namespace mneme::support {
namespace {

using Steady = std::chrono::steady_clock;

}  // namespace

StoreKill::StoreKill(std::string folder, uint32_t seed, int sessions)
    : folder_(std::move(folder)), seed_(seed), sessions_(sessions) {}

Status StoreKill::Live(int run_ms) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return Fail(ErrorCode::kInternal, "pipe");
  const std::string seed = std::to_string(seed_++);
  const std::string sessions = std::to_string(sessions_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    const int quiet = ::open("/dev/null", O_WRONLY);
    ::dup2(quiet, STDERR_FILENO);
    ::execl(MNEME_KILL_CHILD, MNEME_KILL_CHILD, folder_.c_str(), seed.c_str(), sessions.c_str(),
            nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  ready_ = false;
  std::string said;
  Steady::time_point end = Steady::now() + std::chrono::seconds(60);
  bool killed = false;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Steady::now()).count();
    if (left <= 0 && !killed) {
      ::kill(child, SIGKILL);
      killed = true;
    }
    pollfd ready{.fd = out[0], .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, killed ? 1'000 : static_cast<int>(std::max<int64_t>(left, 0))) == 0)
      continue;
    char bytes[65'536];
    const ssize_t n = ::read(out[0], bytes, sizeof(bytes));
    if (n <= 0) break;
    said.append(bytes, static_cast<size_t>(n));
    for (size_t line = said.find('\n'); line != std::string::npos; line = said.find('\n')) {
      const bool was_ready = ready_;
      Take(said.substr(0, line));
      said.erase(0, line + 1);
      // The clock starts when it is ready, or now and then while it is still opening.
      if (!was_ready && ready_) end = Steady::now() + std::chrono::milliseconds(run_ms);
    }
  }
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!killed) return Fail(ErrorCode::kInternal, "the child ended by itself, status {}", status);
  return {};
}

void StoreKill::Take(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::string name;
  uint64_t number = 0;
  words >> what;
  if (what == "R") ready_ = true;
  if (what == "T") {
    std::string chain;
    words >> name >> number >> chain;
    turns_[name][number] = chain;
    acknowledged_turns_ += 1;
  }
  if (what == "N") {
    words >> name >> number;
    newest_nodes_[name] = number;
    acknowledged_nodes_ += 1;
  }
  if (what == "D") {
    words >> number;
    deleted_.insert(number);
  }
}

Status StoreKill::Check() {
  auto stores = Open(folder_);
  MNEME_TRY(stores);
  const auto& report = stores->log->report();
  if (!report.regressions.empty() || !report.damaged.empty())
    return Fail(ErrorCode::kInternal, "the open reports {} regressions, {} damaged sessions",
                report.regressions.size(), report.damaged.size());
  MNEME_TRY(memory::RemoveOrphans(*stores->log, *stores->pages));
  uint64_t nodes = 0;
  for (int i = 0; i < sessions_; ++i) {
    const std::string name = fmt::format("s{}", i);
    MNEME_TRY(CheckSession(*stores, name));
    if (const auto session = stores->log->FindSession("", name);
        session && !session->head.newest_node().empty())
      nodes += stores->log->GetNode({memory::DigestFrom(session->head.newest_node())})
                       ->first_position() /
                   kCaseChunkTokens +
               1;
  }
  MNEME_TRY(CheckVisitor(*stores));
  const auto listed = stores->pages->List();
  MNEME_TRY(listed);
  if (listed->size() > nodes + 1)  // the visitor has one
    return Fail(ErrorCode::kInternal, "{} nodes in the page store, {} in the log", listed->size(),
                nodes);
  return {};
}

Status StoreKill::CheckSession(OpenStores& stores, const std::string& name) {
  const auto session = stores.log->FindSession("", name);
  if (!session) return turns_[name].empty() ? Status() : Fail(session.error());
  const SessionId id{session->record.id()};
  const auto& turns = turns_[name];
  const uint64_t head = session->head.turn();
  const uint64_t last = turns.empty() ? 0 : turns.rbegin()->first;
  // The child waits for each commit, so at most one turn a session and life is unacknowledged;
  // those were found by the child's next life and are acknowledged by being followed.
  if (head < last || head > last + 1)
    return Fail(ErrorCode::kInternal, "{}: acknowledged {}, the head is {}", name, last, head);
  uint64_t next = 1;
  Status wrong;
  if (head > 0) {
    MNEME_TRY(stores.log->ReadTurns(id, {1}, {head}, [&](const memory::StoredTurn& turn) {
      const auto known = turns.find(next);
      if (!IsTurn(name, next, turn.record) ||
          (known != turns.end() && known->second != memory::ShortHex(turn.chain.bytes)))
        wrong = Fail(ErrorCode::kInternal, "{}: turn {} is another one", name, next);
      next += 1;
      return bool{wrong};
    }));
    MNEME_TRY(wrong);
    // Asking again with the key of the last turn tells that it is there, and adds nothing.
    const auto read = stores.log->ReadTurn(id, {head});
    MNEME_TRY(read);
    const auto again =
        CommitOne(*stores.log, MakeTurn(name, id, head, read->record.parts(0).token_ids_size()));
    MNEME_TRY(again);
    if (!again->repeated || again->receipt.turn.value != head ||
        again->receipt.chain != read->chain)
      return Fail(ErrorCode::kInternal, "{}: the key of turn {} is not known", name, head);
    turns_[name][head] = memory::ShortHex(read->chain.bytes);
  }
  return CheckNodes(stores, name, *session);
}

Status StoreKill::CheckNodes(OpenStores& stores, const std::string& name,
                             const memory::StoredSession& session) {
  const auto acknowledged = newest_nodes_.find(name);
  if (session.head.newest_node().empty())
    return acknowledged == newest_nodes_.end() ? Status()
                                               : Fail(ErrorCode::kInternal, "{}: no node", name);
  memory::NodeKey key{memory::DigestFrom(session.head.newest_node())};
  uint64_t index = UINT64_MAX;
  uint32_t chunks = 0;
  while (!key.empty()) {
    const auto node = stores.log->GetNode(key);
    MNEME_TRY(node);
    const uint64_t here = node->first_position() / kCaseChunkTokens;
    if (index != UINT64_MAX && here + 1 != index)
      return Fail(ErrorCode::kInternal, "{}: node {} below node {}", name, here, index);
    if (index == UINT64_MAX && acknowledged != newest_nodes_.end() && here < acknowledged->second)
      return Fail(ErrorCode::kInternal, "{}: newest node {}, acknowledged {}", name, here,
                  acknowledged->second);
    if (index == UINT64_MAX) chunks = static_cast<uint32_t>(here) + 1;
    index = here;
    if (key != CaseNodeKey(name, index) || node->references() != 1)
      return Fail(ErrorCode::kInternal, "{}: node {} with {} references", name, index,
                  node->references());
    const auto whole = stores.pages->Has(key);
    MNEME_TRY(whole);
    if (!*whole) return Fail(ErrorCode::kInternal, "{}: node {} has no values", name, index);
    if (memory::IsRung(static_cast<uint32_t>(index), chunks)) {
      MNEME_TRY(CheckNodeValues(*stores.pages, key, 32));
      rungs_ += 1;
    } else {
      MNEME_TRY(CheckNodeValues(*stores.pages, key, 32, /*first_layer=*/1));
      thinned_ += CheckNodeValues(*stores.pages, key, 32) ? 0 : 1;
    }
    key.bytes = memory::DigestFrom(node->parent());
  }
  return index == 0 ? Status() : Fail(ErrorCode::kInternal, "{}: no first node", name);
}

Status StoreKill::CheckVisitor(OpenStores& stores) {
  for (const uint64_t id : deleted_)
    if (stores.log->GetSession({id}) || stores.log->ReadTurn({id}, {1}))
      return Fail(ErrorCode::kInternal, "session {} was deleted and is there", id);
  return {};
}

}  // namespace mneme::support
