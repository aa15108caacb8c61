// Kills store_kill_child again and again at random moments and checks, after each, everything it
// had acknowledged against what the stores then hold.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "tests/support/store_case.h"

namespace mneme::support {

class StoreKill {
 public:
  StoreKill(std::string folder, uint32_t seed, int sessions);

  // One life: starts the child, kills it after `run_ms`, reads the rest of what it said. False,
  // with a reason, where the child failed by itself.
  Status Live(int run_ms);

  // What the stores hold now, against what was acknowledged; the first difference, or success.
  Status Check();

  uint64_t acknowledged() const { return acknowledged_turns_; }
  uint64_t nodes() const { return acknowledged_nodes_; }
  uint64_t rungs() const { return rungs_; }      // chunks found to be whole starts, all checks
  uint64_t thinned() const { return thinned_; }  // and those that had been thinned
  uint64_t lives_cut_short() const { return lives_cut_short_; }  // killed before it was ready

 private:
  void Take(const std::string& line);
  Status CheckSession(OpenStores& stores, const std::string& name);
  Status CheckNodes(OpenStores& stores, const std::string& name,
                    const memory::StoredSession& session);
  Status CheckVisitor(OpenStores& stores);

  std::string folder_;
  uint32_t seed_;
  int sessions_;
  std::map<std::string, std::map<uint64_t, std::string>> turns_;  // by session: turn, chain
  std::map<std::string, uint64_t> newest_nodes_;                  // by session: index
  std::set<uint64_t> deleted_;
  uint64_t acknowledged_turns_ = 0;
  uint64_t acknowledged_nodes_ = 0;
  uint64_t rungs_ = 0;
  uint64_t thinned_ = 0;
  uint64_t lives_cut_short_ = 0;
  bool ready_ = false;
};

}  // namespace mneme::support
