// The process that is killed: appends turns for several sessions in groups, writes their chunks to
// the page store and then their nodes to the log, thins what are no rungs any more, and makes and
// deletes a session over and over.
// Each line it prints was acknowledged before:
//
//   R                      ready
//   T name turn chain      a turn
//   N name index           a chunk node
//   C id                   the session that comes and goes was made
//   D id                   and deleted
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "memory/ladder.h"
#include "memory/reconcile.h"
#include "tests/support/store_case.h"

namespace mneme {
namespace {

using memory::LogEntry;

void Say(const std::string& line) {
  const std::string text = line + "\n";
  // One write: lines are shorter than a pipe's atomic size.
  if (::write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    ::_exit(5);
}

class Child {
 public:
  Child(support::OpenStores stores, uint32_t seed, int sessions)
      : stores_(std::move(stores)), random_(seed), sessions_(sessions) {}

  int Run() {
    if (!memory::RemoveOrphans(*stores_.log, *stores_.pages)) return 2;
    for (int i = 0; i < sessions_; ++i) {
      const std::string name = fmt::format("s{}", i);
      if (!stores_.log->FindSession("", name) &&
          !support::CommitOne(*stores_.log, support::MakeSession(name)))
        return 3;
    }
    Say("R");
    for (uint64_t round = 0;; ++round) {
      if (!AppendGroup()) return 4;
      if (round % 3 == 0 && !AddChunks()) return 4;
      if (round % 5 == 0 && !ComeAndGo()) return 4;
      if (round % 16 == 0 && !stores_.pages->Sync()) return 4;
    }
  }

 private:
  bool AppendGroup() {
    std::vector<LogEntry> entries;
    std::vector<std::string> names;
    for (int i = 0; i < sessions_; ++i) {
      if (random_() % 3 == 0) continue;
      const std::string name = fmt::format("s{}", i);
      const auto session = stores_.log->FindSession("", name);
      entries.emplace_back(support::MakeTurn(name, {session->record.id()}, session->head.turn() + 1,
                                             static_cast<int>(random_() % 200)));
      names.push_back(name);
    }
    const auto results = stores_.log->Commit(entries);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i] || results[i]->repeated) return false;
      Say(fmt::format("T {} {} {}", names[i], results[i]->receipt.turn.value,
                      memory::ShortHex(results[i]->receipt.chain.bytes)));
    }
    return true;
  }

  bool AddChunks() {
    for (int i = 0; i < sessions_; ++i) {
      const std::string name = fmt::format("s{}", i);
      const auto session = stores_.log->FindSession("", name);
      uint64_t index = 0;
      if (!session->head.newest_node().empty()) {
        const auto newest = stores_.log->GetNode({memory::DigestFrom(session->head.newest_node())});
        if (!newest) return false;
        index = newest->first_position() / support::kCaseChunkTokens + 1;
      }
      if ((index + 1) * support::kCaseChunkTokens > session->head.position()) continue;
      if (!support::WriteNodeValues(*stores_.pages, support::CaseNodeKey(name, index), 32))
        return false;
      const auto added =
          support::CommitOne(*stores_.log, support::MakeNode(name, {session->record.id()}, index));
      if (!added) return false;
      Say(fmt::format("N {} {}", name, index));
      if (!Thin(name, index)) return false;
    }
    return true;
  }

  // Layer 0 stands for what only rungs keep.
  bool Thin(const std::string& name, uint64_t newest) {
    std::vector<memory::ThinnedNode> thinned;
    for (const uint32_t rung : memory::RungsDroppedAt(static_cast<uint32_t>(newest) + 1)) {
      const memory::NodeKey key = support::CaseNodeKey(name, rung);
      thinned.push_back({.node = key, .values = {}});
      for (int head = 0; head < support::kCaseKeyHeads; ++head)
        thinned.back().values.push_back(support::CaseGroupKey(key, 0, head));
    }
    return bool{stores_.pages->Thin(thinned)};
  }

  bool ComeAndGo() {
    if (const auto old = stores_.log->FindSession("", "visitor")) {
      const SessionId id{old->record.id()};
      const auto deleted = support::CommitOne(*stores_.log, memory::DeleteSession{id});
      if (!deleted) return false;
      Say(fmt::format("D {}", id.value));
      return bool{stores_.pages->Delete(deleted->freed)};
    }
    const auto made = support::CommitOne(*stores_.log, support::MakeSession("visitor"));
    if (!made) return false;
    const SessionId id = made->receipt.session;
    Say(fmt::format("C {}", id.value));
    const std::string nodes = fmt::format("visitor{}", id.value);
    return support::CommitOne(*stores_.log, support::MakeTurn("visitor", id, 1, 300)) &&
           support::WriteNodeValues(*stores_.pages, support::CaseNodeKey(nodes, 0)) &&
           support::CommitOne(*stores_.log, support::MakeNode(nodes, id, 0));
  }

  support::OpenStores stores_;
  std::mt19937 random_;
  int sessions_;
};

}  // namespace
}  // namespace mneme

// store_kill_child FOLDER SEED SESSIONS
int main(int argc, char** argv) {
  if (argc != 4) return 1;
  auto stores = mneme::support::Open(argv[1], {.write_buffer_bytes = 256 * mneme::kKiB},
                                     {.write_buffer_bytes = mneme::kMiB});
  if (!stores) {
    ::dprintf(STDERR_FILENO, "%s\n", stores.error().message().c_str());
    return 1;
  }
  return mneme::Child(std::move(*stores), static_cast<uint32_t>(std::atoi(argv[2])),
                      std::atoi(argv[3]))
      .Run();
}
