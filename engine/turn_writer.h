// TurnWriter takes the requests that change sessions through their stages: Open, Append, Generate,
// Close, Delete.
//
//   Append    checked -> encoded -> logged -> answered (-> computed, where that is waited for)
//   Generate  checked -> encoded -> what precedes is computed -> tokens, provisional -> logged
//             -> answered
//
// One write a session at a time: a second is session_busy at once. A write that is cut off is
// logged whole, flagged truncated, or leaves the session as it was.
//
// Threads:  engine thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/admission.h"
#include "engine/answers.h"
#include "engine/chunk_keeper.h"
#include "engine/parts.h"
#include "engine/turn_input.h"
#include "model/chat_template.h"

namespace mneme::engine {

// Why a write is cut off.
enum class CutOff : uint8_t { kCancelled, kDisconnected, kDeadline };

// What one drawn token came with.
struct Sampled {
  int32_t token = 0;
  std::vector<model::ChunkShare> shares;  // where they were asked for
  const std::unordered_map<const memory::ClosedChunk*, uint32_t>* reads = nullptr;
};

class TurnWriter {
 public:
  TurnWriter(Parts& parts, ChunkKeeper& keeper, Admission& admission,
             const model::ChatTemplate& chat)
      : parts_(parts), keeper_(keeper), admission_(admission), chat_(chat) {}

  void Open(std::shared_ptr<Call> call);
  void Append(const std::shared_ptr<Call>& call);
  void Generate(const std::shared_ptr<Call>& call);
  void Close(const std::shared_ptr<Call>& call);
  void Delete(std::shared_ptr<Call> call);

  // One round: cut-off writes, progress, writes that wait for memory or computing. True while any
  // call is in flight.
  bool Advance();

  // Everything before the first token is computed. Once; later calls do nothing.
  void Started(Session& session);

  // The session's next token was drawn.
  void OnSampled(Session& session, const Sampled& sampled);

  // Its tokens cannot be computed: the write in flight ends, the session is as its log says.
  void OnError(Session& session, const Error& error);

  // Ends every call in flight.
  void CancelAll();

 private:
  struct Opener {
    std::shared_ptr<Call> call;
    SessionId session;
    bool created = false;
  };

  // The session that a write may begin on; the call is answered where there is none.
  template <typename Request>
  Session* Begin(const std::shared_ptr<Call>& call, const Request& request);
  Result<Session*> Find(const std::string& name);
  Status CheckHead(const Session& session, const v1::Head& expected) const;
  Status CheckRoom(const Session& session, uint64_t tokens) const;
  uint64_t PositionsMax() const;

  void Create(std::shared_ptr<Call> call);
  // Makes room for the session that `call` asks for, where there is an empty one that nobody has in
  // flight: the one unused for longest.
  void RemoveEmpty(const std::shared_ptr<Call>& call);
  void Opened(const Opener& opener);
  bool AdvanceOpener(const Opener& opener);
  void AdvanceWriting(Session& session);
  void TellProgress(Session& session);
  void Cut(Session& session, CutOff why);
  // The write begins: its input becomes tokens, here or on the encoder's thread.
  template <typename Request>
  void Encode(Session& session, const std::shared_ptr<Call>& call, WriteKind kind,
              const Request& request);
  void OnEncoded(Session& session, Result<TurnInput> input);
  Status CheckEncoded(const Session& session, const TurnInput& input) const;
  void BeginAppend(Session& session, const TurnInput& input);
  // Errors: of the log, where a penalty looks at earlier turns
  Status BeginGeneration(Session& session, TurnInput input);
  void Explain(Session& session, const Sampled& sampled);
  void CommitAppend(Session& session);
  void OnAppended(SessionId id, Result<memory::Committed> result);
  void CommitGenerated(Session& session);
  void OnGenerated(SessionId id, Result<memory::Committed> result);
  void DeleteUnserved(std::shared_ptr<Call> call);
  void OnDeleted(SessionId id, std::string name, Result<memory::Committed> result);
  // From here no write of it begins.
  void BeginDelete(Session& session, std::shared_ptr<Call> call);
  // It is gone from the log.
  void Forget(Session& session, const memory::Committed& committed);
  v1::Event DoneEvent(const Session& session, const memory::Receipt& receipt) const;
  // One line of the log for an error; of a full disk one for all writes that it refuses until there
  // is room again.
  void LogError(std::string_view event, const Session& session, const Error& error);
  void LogRoom();  // a turn was committed
  // The log refused the turn.
  void Refused(Session& session, const Error& error);
  // The write is over; what it had not committed is forgotten.
  void EndWriting(Session& session, bool committed);
  void RefreshHead(Session& session);

  Parts& parts_;
  ChunkKeeper& keeper_;
  Admission& admission_;
  const model::ChatTemplate& chat_;
  uint64_t refused_full_ = 0;    // writes that the full disk refused since there was room
  std::vector<Opener> openers_;  // wait for memory
  std::map<std::string, std::vector<std::shared_ptr<Call>>> creating_;  // by name
};

}  // namespace mneme::engine
