// What RocksDB does, counted for `../figures.rs`: without its statistics, and read without its mutex.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "db/column_family.h"
#include "db/db_impl/db_impl.h"
#include "db/memtable.h"
#include "db/memtable_list.h"
#include "db/version_set.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/utilities/object_registry.h"

namespace {

using rocksdb::ColumnFamilyHandleImpl;
using rocksdb::CompactionJobInfo;
using rocksdb::DB;
using rocksdb::DBImpl;
using rocksdb::EventListener;
using rocksdb::FlushJobInfo;
using rocksdb::MemTable;
using rocksdb::SuperVersion;
using rocksdb::WriteStallCondition;
using rocksdb::WriteStallInfo;

constexpr int kLevels = 7;

// As in `../figures.rs`.
struct Work {
  uint64_t flushes;
  uint64_t compactions;
  uint64_t compactions_running;
  uint64_t compaction_us;
  uint64_t compaction_read_bytes;
  uint64_t compaction_written_bytes;
  uint64_t slowdowns;
  uint64_t stops;
};
struct Family {
  uint64_t files[kLevels];
  uint64_t bytes[kLevels];
  uint64_t pending_compaction_bytes;
  uint64_t active_memtable_bytes;
  uint64_t immutable_memtables;
  uint64_t blob_files;
  uint64_t blob_bytes;
};

using Counter = std::atomic<uint64_t>;

void Add(Counter& counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }
uint64_t Get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

Counter flushes{0}, compactions_begun{0}, compactions_ended{0}, compaction_us{0};
Counter compaction_read_bytes{0}, compaction_written_bytes{0}, slowdowns{0}, stops{0};

class Listener final : public EventListener {
 public:
  const char* Name() const override { return "kedis.Figures"; }

  void OnFlushCompleted(DB*, const FlushJobInfo&) override { Add(flushes, 1); }
  void OnCompactionBegin(DB*, const CompactionJobInfo&) override { Add(compactions_begun, 1); }
  void OnCompactionCompleted(DB*, const CompactionJobInfo& done) override {
    Add(compactions_ended, 1);
    Add(compaction_us, done.stats.elapsed_micros);
    Add(compaction_read_bytes, done.stats.total_input_bytes);
    Add(compaction_written_bytes,
        done.stats.total_output_bytes + done.stats.total_output_bytes_blob);
  }
  void OnStallConditionsChanged(const WriteStallInfo& info) override {
    if (info.condition.cur == WriteStallCondition::kDelayed) Add(slowdowns, 1);
    if (info.condition.cur == WriteStallCondition::kStopped) Add(stops, 1);
  }
};

// As in RocksDB's C interface.
struct CColumnFamily {
  rocksdb::ColumnFamilyHandle* rep;
};

}  // namespace

// Registers the listener under a name, for option strings.
extern "C" void kedis_figures_register(const char* name) {
  rocksdb::ObjectLibrary::Default()->AddFactory<EventListener>(
      name, [](const std::string&, std::unique_ptr<EventListener>* guard, std::string*) {
        guard->reset(new Listener());
        return guard->get();
      });
}

extern "C" void kedis_figures_work(Work* work) {
  const uint64_t ended = Get(compactions_ended);
  const uint64_t begun = Get(compactions_begun);
  work->flushes = Get(flushes);
  work->compactions = ended;
  work->compactions_running = begun >= ended ? begun - ended : 0;
  work->compaction_us = Get(compaction_us);
  work->compaction_read_bytes = Get(compaction_read_bytes);
  work->compaction_written_bytes = Get(compaction_written_bytes);
  work->slowdowns = Get(slowdowns);
  work->stops = Get(stops);
}

// Adds the figures of a column family. They are those of its last superversion, which is read as a
// look-up reads it.
extern "C" void kedis_figures_add_family(CColumnFamily* family, Family* sum) {
  auto* handle = static_cast<ColumnFamilyHandleImpl*>(family->rep);
  DBImpl* db = handle->db();
  SuperVersion* version = db->GetAndRefSuperVersion(handle->cfd());
  const auto* tables = version->current->storage_info();
  const int levels = tables->num_levels() < kLevels ? tables->num_levels() : kLevels;
  for (int level = 0; level < levels; ++level) {
    sum->files[level] += static_cast<uint64_t>(tables->NumLevelFiles(level));
    sum->bytes[level] += tables->NumLevelBytes(level);
  }
  sum->pending_compaction_bytes += tables->estimated_compaction_needed_bytes();
  // What takes rows is of this class.
  const auto* active = static_cast<const MemTable*>(version->mem);
  sum->active_memtable_bytes += active->ApproximateMemoryUsageFast();
  sum->immutable_memtables += static_cast<uint64_t>(version->imm->NumNotFlushed());
  const auto& blobs = tables->GetBlobFiles();
  sum->blob_files += blobs.size();
  sum->blob_bytes += tables->GetBlobStats().total_file_size;
  db->ReturnAndCleanupSuperVersion(handle->cfd(), version);
}

// Whether writes wait for compactions now: 0 no, 1 they are slowed down, 2 they are stopped.
extern "C" uint8_t kedis_figures_stall(CColumnFamily* family) {
  const auto& writes = static_cast<ColumnFamilyHandleImpl*>(family->rep)->db()->write_controller();
  return writes.IsStopped() ? 2 : writes.NeedsDelay() ? 1 : 0;
}
