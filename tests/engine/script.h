// A conversation as a list of turns, run on an engine, and everything that it leaves: the tokens of
// every answer and the bytes of every page. Two runs that should agree are compared by these.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_case.h"

namespace mneme::support {

struct ScriptTurn {
  size_t input_tokens = 0;
  uint32_t generated_tokens = 0;  // 0: an append
};

// About `tokens` tokens in turns of random sizes.
std::vector<ScriptTurn> RandomScript(size_t tokens, uint64_t seed);

struct Outcome {
  std::vector<std::vector<uint32_t>> answers;
  std::vector<std::pair<std::string, std::string>> pages;  // name and bytes of every stored group
  bool operator==(const Outcome&) const = default;
};

// Runs the turns one after the other; `before` is called with the index of each.
Outcome RunScript(EngineCase& engine, const std::string& session,
                  const std::vector<ScriptTurn>& script, uint64_t seed,
                  const std::function<void(size_t)>& before = {});

// Every page group of the session's chunk nodes that stays, as stored: not those that only starts
// need.
std::vector<std::pair<std::string, std::string>> StoredPages(EngineCase& engine,
                                                             const std::string& session);

// Waits until nothing of the session is left to be saved; false after ten seconds.
bool WaitForChunks(EngineCase& engine, const std::string& session, uint64_t chunks);

}  // namespace mneme::support
