// Sessions, turns and page values whose content follows from their names, so that a test that finds
// them again after a crash can tell whether they are right.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/page_store.h"
#include "memory/turn_store.h"

namespace mneme::support {

inline constexpr int kCaseLayers = 2;
inline constexpr int kCaseKeyHeads = 2;
inline constexpr uint32_t kCaseChunkTokens = 256;

// A folder with both stores open in it, closed in the right order.
struct OpenStores {
  std::unique_ptr<memory::StoreFolder> folder;
  std::unique_ptr<memory::TurnStore> log;
  std::unique_ptr<memory::PageStore> pages;

  void Close() {
    log.reset();
    pages.reset();
    folder.reset();
  }
  ~OpenStores() { Close(); }
  OpenStores() = default;
  OpenStores(OpenStores&&) = default;
  OpenStores& operator=(OpenStores&&) = default;
};

// Marks that no disk of a test machine falls below.
memory::SpaceMarks NoMarks();

Result<OpenStores> Open(const std::string& path, const memory::TurnStoreOptions& log = {},
                        const memory::PageStoreOptions& pages = {},
                        const memory::SpaceMarks& marks = NoMarks());
// The log alone.
Result<OpenStores> OpenLog(const std::string& path, const memory::TurnStoreOptions& log = {},
                           Clock& clock = RealClock(), const memory::SpaceMarks& marks = NoMarks());

memory::CreateSession MakeSession(const std::string& name, const std::string& tenant = "");
// Turn `number` of the session called `name`: its tokens, key and kind follow from both.
memory::AppendTurn MakeTurn(const std::string& name, SessionId session, uint64_t number,
                            int tokens = 60);
bool IsTurn(const std::string& name, uint64_t number, const v1::TurnRecord& record);

// Chunk `index` of the session: its node, and its values in the page store.
memory::NodeKey CaseNodeKey(const std::string& name, uint64_t index);
memory::AddNode MakeNode(const std::string& name, SessionId session, uint64_t index);
memory::PageKey CaseGroupKey(const memory::NodeKey& node, int layer, int key_head);
std::vector<std::byte> MakeGroup(const memory::PageKey& key, int key_dim = 16);
Status WriteNodeValues(memory::PageStore& pages, const memory::NodeKey& node, int key_dim = 16);
// kNotFound or kCorruption where one of them is not what was written.
Status CheckNodeValues(memory::PageStore& pages, const memory::NodeKey& node, int key_dim = 16,
                       int first_layer = 0);

// The one entry, committed.
Result<memory::Committed> CommitOne(memory::TurnStore& log, const memory::LogEntry& entry);

uint64_t FolderBytes(const std::string& path);  // as the disk counts them
std::vector<std::string> FilesOf(const std::string& folder, const std::string& extension);
void FlipBit(const std::string& path, uint64_t byte, int bit);

}  // namespace mneme::support
