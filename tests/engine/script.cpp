#include "tests/engine/script.h"

#include <chrono>
#include <random>
#include <thread>

#include "base/check.h"
#include "memory/chunk_value.h"

namespace mneme::support {

namespace {

bool IsClosed(const memory::MemoryLayout& layout, uint32_t layer) {
  for (const int paged : layout.closed_layers) {
    const int linear = layout.paged_layers[static_cast<size_t>(paged)];
    if (layout.linear_layers[static_cast<size_t>(linear)] == static_cast<int>(layer)) return true;
  }
  return false;
}

}  // namespace

std::vector<ScriptTurn> RandomScript(size_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ScriptTurn> script;
  for (size_t total = 0; total < tokens;) {
    ScriptTurn turn = {
        .input_tokens = 1 + random() % 300,
        .generated_tokens = random() % 3 == 0 ? 0 : static_cast<uint32_t>(1 + random() % 40)};
    total += turn.input_tokens + turn.generated_tokens;
    script.push_back(turn);
  }
  return script;
}

Outcome RunScript(EngineCase& engine, const std::string& session,
                  const std::vector<ScriptTurn>& script, uint64_t seed,
                  const std::function<void(size_t)>& before) {
  Outcome outcome;
  for (size_t index = 0; index < script.size(); ++index) {
    if (before) before(index);
    const auto ids = RandomIds(script[index].input_tokens, seed * 1000 + index);
    if (script[index].generated_tokens == 0) {
      const Answer answer = engine.Append(session, ids, /*wait=*/index % 2 == 0);
      MNEME_CHECK(!answer.failed(), "{}", answer.last().failed().error().message());
      outcome.answers.emplace_back();
    } else {
      const Answer answer = engine.Generate(session, ids, script[index].generated_tokens);
      MNEME_CHECK(!answer.failed(), "{}", answer.last().failed().error().message());
      outcome.answers.push_back(answer.tokens());
    }
  }
  const Answer settled = engine.Append(session, {10}, /*wait=*/true);
  MNEME_CHECK(!settled.failed(), "{}", settled.last().failed().error().message());
  const uint64_t position = settled.last().appended().receipt().head().position();
  MNEME_CHECK(WaitForChunks(engine, session, position / 256), "chunks were not saved");
  outcome.pages = StoredPages(engine, session);
  return outcome;
}

bool WaitForChunks(EngineCase& engine, const std::string& session, uint64_t chunks) {
  for (int i = 0; i < 5000; ++i) {
    const auto stored = engine.stores().log->FindSession("", session);
    if (!stored) return false;
    if (chunks == 0) return true;
    const memory::NodeKey newest{memory::DigestFrom(stored->head.newest_node())};
    const auto node = engine.stores().log->GetNode(newest);
    if (node && node->first_position() / 256 + 1 >= chunks) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::vector<std::pair<std::string, std::string>> StoredPages(EngineCase& engine,
                                                             const std::string& session) {
  std::vector<std::pair<std::string, std::string>> pages;
  const auto stored = engine.stores().log->FindSession("", session);
  MNEME_CHECK(stored.has_value(), "{}", session);
  memory::NodeKey key{memory::DigestFrom(stored->head.newest_node())};
  const memory::MemoryLayout& layout = engine.model().layout();
  std::vector<std::byte> bytes(layout.group_bytes());
  while (!key.empty()) {
    const auto node = engine.stores().log->GetNode(key);
    MNEME_CHECK(node.has_value(), "{}", node.error().message());
    for (const uint32_t layer : node->group_layers()) {
      if (IsClosed(layout, layer)) continue;
      for (uint32_t head = 0; head < node->groups_per_layer(); ++head) {
        const memory::PageKey page = {.node = key,
                                      .kind = memory::ValueKind::kPageGroup,
                                      .layer = static_cast<uint16_t>(layer),
                                      .key_head = static_cast<uint16_t>(head)};
        const auto read = engine.stores().pages->Read(page, bytes);
        MNEME_CHECK(read.has_value(), "{}", read.error().message());
        pages.emplace_back(memory::NameOf(page), std::string(AsText(ByteSpan(bytes))));
      }
    }
    key = memory::NodeKey{memory::DigestFrom(node->parent())};
  }
  return pages;
}

}  // namespace mneme::support
