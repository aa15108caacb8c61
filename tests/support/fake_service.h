// A Service without a model: sessions in memory, and a deterministic model that echoes. It stands
// in for the engine where sockets, clients and commands are tested.
//
// What the newest message says decides what happens:
//
//   count N       the answer is N tokens, "1 ", "2 ", ...
//   read N        N progress events come before the first token
//   fail NAME     the request fails with the code or reason of that name
//   anything else the answer is "you said: " and the text, a token a word
//
// Threads:  one of its own answers every call; generations take turns, a token each.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/inbox.h"
#include "engine/service.h"

namespace mneme::support {

struct FakeServiceOptions {
  int64_t token_us = 0;    // between two tokens of one generation
  size_t token_bytes = 0;  // tokens are padded to this length
  uint32_t queue_max = 1024;
};

class FakeService : public engine::Service {
 public:
  explicit FakeService(FakeServiceOptions options = {});
  ~FakeService() override;

  Status Submit(std::shared_ptr<engine::Call> call) override;
  v1::Health Health() override;

  // The thread takes no calls while this is on, as in a long step.
  void SetStuck(bool stuck);
  uint64_t tokens_generated() const { return tokens_generated_; }
  uint64_t clients_lost() const { return clients_lost_; }  // generations ended by that
  uint64_t steps_paused() const { return steps_paused_; }  // steps skipped for a slow reader
  uint32_t running() const { return running_count_; }

 private:
  struct Session {
    v1::Head head;
    std::vector<v1::TranscriptTurn> turns;
    std::map<std::string, std::pair<std::string, v1::Event>> answers;  // by idempotency key
    int64_t created_us = 0;
    int64_t last_used_us = 0;
    bool busy = false;
  };
  struct Generation {
    std::shared_ptr<engine::Call> call;
    std::string prompt;
    std::vector<std::string> tokens;
    size_t next = 0;
    int64_t next_us = 0;
    uint32_t progress_left = 0;
    uint32_t progress_total = 0;
    bool started = false;
    std::string text;
  };

  void Run();
  void Answer(const std::shared_ptr<engine::Call>& call);
  void Open(engine::Call& call);
  void Append(engine::Call& call);
  void Generate(const std::shared_ptr<engine::Call>& call);
  void ShowTranscript(engine::Call& call);
  void List(engine::Call& call);
  void Explain(engine::Call& call);
  void ShowStats(engine::Call& call);
  // One step of it; true when it has ended.
  bool Step(Generation& generation);
  bool EmitToken(Generation& generation);
  // Cancelled, too late, or nobody reads any more; true when it has ended for that.
  bool EndIfUnwanted(Generation& generation, int64_t now_us);
  void End(Generation& generation, const std::string& stop_reason, bool truncated);
  bool Drop(Generation& generation, ErrorCode code, const std::string& why);
  // Writes a turn and gives its receipt.
  v1::Receipt Commit(const std::string& name, Session& session, const std::string& prompt,
                     const std::string& answer, const std::string& stop_reason, bool truncated);
  // The session a write may go on; nullptr after the call has failed.
  Session* Writable(engine::Call& call, const std::string& name, const v1::Head* expected);
  bool Replay(engine::Call& call, Session& session, const std::string& key,
              const std::string& request);
  void Remember(Session& session, const std::string& key, const std::string& request,
                const v1::Event& event);

  const FakeServiceOptions options_;
  Inbox<std::shared_ptr<engine::Call>> inbox_;
  std::map<std::string, Session> sessions_;
  std::vector<Generation> running_;
  uint64_t commits_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> stuck_{false};
  std::atomic<bool> is_stuck_{false};
  std::atomic<uint64_t> tokens_generated_{0};
  std::atomic<uint64_t> clients_lost_{0};
  std::atomic<uint64_t> steps_paused_{0};
  std::atomic<uint32_t> running_count_{0};
  std::thread thread_;
};

}  // namespace mneme::support
