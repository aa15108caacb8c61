#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/file_error.h"
#include "base/log.h"
#include "memory/open_rocksdb.h"
#include "memory/page_store.h"

namespace mneme::memory {
namespace {

// Marks are small, so they lie in the tables themselves: listing nodes reads no blob.
//
//   node 0 0 0 := ""   the node has values
//   node 0 0 1 := ""   the node is whole
//   node 0 0 2 := ""   the node is thin
constexpr uint16_t kHasValues = 0;
constexpr uint16_t kIsWhole = 1;
constexpr uint16_t kIsThin = 2;
constexpr size_t kKeyBytes = 37;

std::string KeyBytes(const PageKey& key) {
  std::string bytes(TextOf(key.node.bytes));
  bytes.reserve(kKeyBytes);
  bytes.push_back(static_cast<char>(key.kind));
  for (const uint16_t number : {key.layer, key.key_head}) {
    bytes.push_back(static_cast<char>(number >> 8));
    bytes.push_back(static_cast<char>(number & 0xff));
  }
  return bytes;
}

std::string MarkBytes(const NodeKey& node, uint16_t mark) {
  return KeyBytes({.node = node, .kind = ValueKind::kMark, .layer = 0, .key_head = mark});
}

// The first key after all keys of `node`: kinds stay below 255.
std::string EndOf(const NodeKey& node) {
  std::string bytes(TextOf(node.bytes));
  bytes.push_back('\xff');
  return bytes;
}

Status RemoveFiles(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    std::filesystem::remove_all(entry.path(), error);
  if (error)
    return Fail(ErrorCode::kUnavailable, "page folder {}",
                FileErrorText(path, "emptied", error.value()));
  return {};
}

class RocksdbPageStore final : public PageStore {
 public:
  RocksdbPageStore(StoreFolder& folder, const DatabaseOptions& options,
                   std::unique_ptr<rocksdb::DB> db)
      : folder_(folder), path_(folder.pages_path()), options_(options), db_(std::move(db)) {}

  ~RocksdbPageStore() override {
    if (const Status synced = Sync(); !synced)
      MNEME_LOG(kWarning, "page_store_close", "error=\"{}\"", synced.error().message());
  }

  Status Write(std::span<const PageWrite> values, std::span<const NodeKey> whole) override {
    if (folder_.room() != DiskRoom::kEnough)
      return Fail(
          Error(Reason::kStoreFull, "write pages: " + folder_.RoomText()).RetryAfter(5'000));
    rocksdb::WriteBatch batch;
    uint64_t bytes = 0;
    NodeKey marked;
    for (const PageWrite& write : values) {
      MNEME_TRY(SealValue(write.key, write.value));
      if (write.key.node != marked) {
        batch.Put(MarkBytes(write.key.node, kHasValues), "");
        marked = write.key.node;
      }
      if (write.key.kind == ValueKind::kBoundary) batch.Delete(MarkBytes(write.key.node, kIsThin));
      batch.Put(
          KeyBytes(write.key),
          rocksdb::Slice(reinterpret_cast<const char*>(write.value.data()), write.value.size()));
      bytes += write.value.size();
    }
    for (const NodeKey& node : whole) {
      batch.Put(MarkBytes(node, kHasValues), "");
      batch.Put(MarkBytes(node, kIsWhole), "");
    }
    MNEME_TRY(Apply(&batch, /*sync=*/false, "write pages"));
    writes_.fetch_add(values.size(), std::memory_order_relaxed);  // counters order nothing
    written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return {};
  }

  Result<size_t> Read(const PageKey& key, MutableByteSpan destination) override {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return Closed();
    rocksdb::PinnableSlice value;
    rocksdb::ReadOptions options;
    options.fill_cache = true;  // of table blocks; blobs are never cached
    const rocksdb::Status status =
        db_->Get(options, db_->DefaultColumnFamily(), KeyBytes(key), &value);
    if (status.IsNotFound()) return Fail(ErrorCode::kNotFound, "{}: not stored", NameOf(key));
    if (!status.ok()) {
      damaged_reads_.fetch_add(1, std::memory_order_relaxed);
      Error error = ErrorFrom(status, NameOf(key), path_);
      // A file that went missing or short while open is damage too, and costs this value only.
      if (error.code() == ErrorCode::kUnavailable)
        return Fail(ErrorCode::kCorruption, "{}", error.message());
      return Fail(std::move(error));
    }
    const ByteSpan bytes = AsBytes({value.data(), value.size()});
    if (bytes.size() > destination.size())
      return Fail(ErrorCode::kInvalidArgument, "{}: {} bytes do not fit into {}", NameOf(key),
                  bytes.size(), destination.size());
    if (Status checked = CheckValue(key, bytes); !checked) {
      damaged_reads_.fetch_add(1, std::memory_order_relaxed);
      return Fail(std::move(checked).error());
    }
    std::memcpy(destination.data(), bytes.data(), bytes.size());
    reads_.fetch_add(1, std::memory_order_relaxed);
    read_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
    return bytes.size();
  }

  Status Delete(std::span<const NodeKey> nodes) override {
    rocksdb::WriteBatch batch;
    for (const NodeKey& node : nodes)
      batch.DeleteRange(rocksdb::Slice(TextOf(node.bytes).data(), node.bytes.size()), EndOf(node));
    return Apply(&batch, /*sync=*/false, "delete pages");
  }

  Status Thin(std::span<const ThinnedNode> nodes) override {
    rocksdb::WriteBatch batch;
    for (const ThinnedNode& thinned : nodes) {
      const auto thin = IsThin(thinned.node);
      MNEME_TRY(thin);
      if (*thin) continue;
      for (const PageKey& key : thinned.values) batch.Delete(KeyBytes(key));
      batch.Put(MarkBytes(thinned.node, kIsThin), "");
    }
    if (batch.Count() == 0) return {};
    return Apply(&batch, /*sync=*/false, "thin pages");
  }

  Result<bool> IsThin(const NodeKey& node) override { return Marked(node, kIsThin); }

  Result<bool> Has(const NodeKey& node) override { return Marked(node, kIsWhole); }

  Result<std::vector<NodeKey>> List() override {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return Closed();
    std::vector<NodeKey> nodes;
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
    for (at->SeekToFirst(); at->Valid(); at->Seek(EndOf(nodes.back()))) {
      const rocksdb::Slice key = at->key();
      if (key.size() != kKeyBytes)
        return Fail(ErrorCode::kCorruption, "list nodes: a key of {} bytes", key.size());
      nodes.push_back({DigestFrom({key.data(), sizeof(Digest)})});
    }
    if (!at->status().ok()) return Fail(ErrorFrom(at->status(), "list nodes", path_));
    return nodes;
  }

  // Not SyncWAL: with log tracking on it makes 7.8.3 refuse a sound store. A flushed write flushes
  // every log file before it.
  Status Sync() override {
    rocksdb::WriteBatch batch;
    batch.Put("sync", "");
    batch.Delete("sync");
    return Apply(&batch, /*sync=*/true, "sync pages");
  }

  Status Compact() override {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return Closed();
    return CompactDatabase(*db_, path_);
  }

  uint64_t FileBytes() override {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return 0;
    uint64_t tables = 0;
    uint64_t blobs = 0;
    db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &tables);
    db_->GetIntProperty(rocksdb::DB::Properties::kTotalBlobFileSize, &blobs);
    return tables + blobs;
  }

  PageStoreCounters counters() const override {
    return {.reads = reads_.load(std::memory_order_relaxed),
            .read_bytes = read_bytes_.load(std::memory_order_relaxed),
            .writes = writes_.load(std::memory_order_relaxed),
            .written_bytes = written_bytes_.load(std::memory_order_relaxed),
            .damaged_reads = damaged_reads_.load(std::memory_order_relaxed),
            .mends = mends_.load(std::memory_order_relaxed)};
  }

  PageStoreState state() const override { return state_; }

 private:
  static tl::unexpected<Error> Closed() {
    return Fail(ErrorCode::kUnavailable, "page store: it could not be opened again");
  }

  Result<bool> Marked(const NodeKey& node, uint16_t mark) {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return Closed();
    std::string nothing;
    const rocksdb::Status status = db_->Get({}, MarkBytes(node, mark), &nothing);
    if (status.IsNotFound()) return false;
    if (!status.ok()) return Fail(ErrorFrom(status, "look for node", path_));
    return true;
  }

  Status Apply(rocksdb::WriteBatch* batch, bool sync, std::string_view what) {
    rocksdb::Status status = WriteNow(batch, sync);
    // Once a compaction has met damage, RocksDB refuses every write for it.
    if (status.IsCorruption() && !sync) {
      MNEME_TRY(Mend(ErrorFrom(status, what, path_)));
      status = WriteNow(batch, sync);
    }
    if (!status.ok()) {
      Error error = ErrorFrom(status, what, path_);
      if (error.reason() != Reason::kStoreFull) state_ = PageStoreState::kFailed;
      return Fail(std::move(error));
    }
    return {};
  }

  rocksdb::Status WriteNow(rocksdb::WriteBatch* batch, bool sync) {
    const std::shared_lock lock(mutex_);
    if (db_ == nullptr) return rocksdb::Status::Corruption("it could not be opened again");
    rocksdb::WriteOptions options;
    options.sync = sync;
    options.protection_bytes_per_key = 8;
    return db_->Write(options, batch);
  }

  // Finds the nodes with damaged values, reading everything, and drops them, so that the rest can
  // be written and compacted again. Where tables themselves are damaged, everything is dropped.
  Status Mend(const Error& why) {
    MNEME_LOG(kWarning, "page_store_mends", "error=\"{}\"", why.message());
    state_ = PageStoreState::kMending;
    const Status mended = TakeOutDamage();
    state_ = mended ? PageStoreState::kReady : PageStoreState::kFailed;
    if (mended) mends_.fetch_add(1, std::memory_order_relaxed);
    return mended;
  }

  Status TakeOutDamage() {
    MNEME_TRY(Reopen({.compacts = false}));
    const auto dropped = DropDamagedNodes();
    if (dropped) {
      MNEME_LOG(kWarning, "page_store_mended", "nodes_dropped={}", *dropped);
    } else {
      MNEME_LOG(kWarning, "page_store_emptied", "error=\"{}\"", dropped.error().message());
    }
    return Reopen({.compacts = true, .emptied = !dropped});
  }

  Result<size_t> DropDamagedNodes() {
    const auto damaged = DamagedNodes();
    MNEME_TRY(damaged);
    rocksdb::WriteBatch batch;
    for (const NodeKey& node : *damaged)
      batch.DeleteRange(rocksdb::Slice(TextOf(node.bytes).data(), node.bytes.size()), EndOf(node));
    if (const auto status = WriteNow(&batch, /*sync=*/true); !status.ok())
      return Fail(ErrorFrom(status, "drop damaged pages", path_));
    MNEME_TRY(Compact());  // a damaged table shows again here
    return damaged->size();
  }

  struct Reopening {
    bool compacts = true;
    bool emptied = false;  // all files are removed in between
  };

  // Nobody meets it closed: readers wait until it is open again.
  Status Reopen(Reopening how) {
    DatabaseOptions options = options_;
    options.compacts = how.compacts;
    const std::unique_lock lock(mutex_);
    db_.reset();
    if (how.emptied) MNEME_TRY(RemoveFiles(path_));
    auto opened = OpenDatabase(options);
    if (!opened && opened.error().code() == ErrorCode::kCorruption) {
      MNEME_LOG(kWarning, "page_store_emptied", "error=\"{}\"", opened.error().message());
      MNEME_TRY(RemoveFiles(path_));
      opened = OpenDatabase(options);
    }
    MNEME_TRY(opened);
    db_ = std::move(opened->db);
    return {};
  }

  Result<std::vector<NodeKey>> DamagedNodes() {
    const auto nodes = List();
    MNEME_TRY(nodes);
    const std::shared_lock lock(mutex_);
    std::vector<NodeKey> damaged;
    for (const NodeKey& node : *nodes) {
      const std::string end = EndOf(node);
      const rocksdb::Slice bound(end);
      rocksdb::ReadOptions options;
      options.fill_cache = false;
      options.iterate_upper_bound = &bound;
      const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
      at->Seek(rocksdb::Slice(TextOf(node.bytes).data(), node.bytes.size()));
      while (at->Valid()) at->Next();
      if (!at->status().ok()) damaged.push_back(node);
    }
    return damaged;
  }

  StoreFolder& folder_;
  const std::string path_;
  const DatabaseOptions options_;
  std::shared_mutex mutex_;  // held alone only to open it again
  std::unique_ptr<rocksdb::DB> db_;
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint64_t> read_bytes_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> written_bytes_{0};
  std::atomic<uint64_t> damaged_reads_{0};
  std::atomic<uint64_t> mends_{0};
  std::atomic<PageStoreState> state_{PageStoreState::kReady};
};

// Opens it and reads every key, as damage in a table shows only then.
Result<std::unique_ptr<PageStore>> OpenReadable(StoreFolder& folder,
                                                const DatabaseOptions& database) {
  auto db = OpenDatabase(database);
  MNEME_TRY(db);
  std::unique_ptr<PageStore> store =
      std::make_unique<RocksdbPageStore>(folder, database, std::move(db->db));
  const auto nodes = store->List();
  MNEME_TRY(nodes);
  return store;
}

}  // namespace

Result<OpenedPageStore> OpenPageStore(StoreFolder& folder, const PageStoreOptions& options) {
  const DatabaseOptions database{.path = folder.pages_path(),
                                 .use = DatabaseOptions::Use::kPages,
                                 .env = options.env,
                                 .write_buffer_bytes = options.write_buffer_bytes,
                                 .block_cache_bytes = options.block_cache_bytes,
                                 .direct_io = options.direct_io};
  bool started_empty = false;
  auto store = OpenReadable(folder, database);
  if (!store && store.error().code() == ErrorCode::kCorruption && options.start_empty_if_damaged) {
    MNEME_LOG(kWarning, "page_store_emptied", "error=\"{}\"", store.error().message());
    MNEME_TRY(RemoveFiles(folder.pages_path()));
    started_empty = true;
    store = OpenReadable(folder, database);
  }
  MNEME_TRY(store);
  return OpenedPageStore{.store = std::move(*store), .started_empty = started_empty};
}

}  // namespace mneme::memory
