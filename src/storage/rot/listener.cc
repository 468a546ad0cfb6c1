// Keeps a compaction that meets an unreadable block from stopping all writes; see `../rot.rs`.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "db/column_family.h"
#include "db/compaction/compaction.h"
#include "db/compaction/compaction_picker.h"
#include "db/db_impl/db_impl.h"
#include "db/version_edit.h"
#include "db/version_set.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/utilities/object_registry.h"

// Defined in `../rot.rs`.
extern "C" {
bool kedis_rot_is_of_table(const char* message, size_t len);
void kedis_rot_met(void* db, const char* message, size_t len);
}

namespace {

using rocksdb::BackgroundErrorReason;
using rocksdb::ColumnFamilyData;
using rocksdb::CompactionInputFiles;
using rocksdb::CompactionJobInfo;
using rocksdb::CompactionOptions;
using rocksdb::DB;
using rocksdb::DBImpl;
using rocksdb::EventListener;
using rocksdb::FileMetaData;
using rocksdb::InstrumentedMutexLock;
using rocksdb::MutableDBOptions;
using rocksdb::Status;

class Listener final : public EventListener {
 public:
  const char* Name() const override { return "kedis.Listener"; }

  void OnBackgroundError(BackgroundErrorReason reason, Status* error) override {
    if (reason != BackgroundErrorReason::kCompaction || !error->IsCorruption()) return;
    const std::string message = error->ToString();
    if (kedis_rot_is_of_table(message.data(), message.size())) *error = Status::OK();
  }

  void OnCompactionCompleted(DB* db, const CompactionJobInfo& compaction) override {
    if (!compaction.status.IsCorruption()) return;
    const std::string message = compaction.status.ToString();
    kedis_rot_met(db, message.data(), message.size());
  }
};

// Access to protected members of `DBImpl`.
struct Inside : DBImpl {
  static constexpr auto kVersions = &Inside::versions_;
  static constexpr auto kMutex = &Inside::mutex_;
};

}  // namespace

// Registers a compaction of this table alone that never runs, so that no other one uses the table,
// nor writes to its level and range. Returns whether it did: not if the table does not exist any
// more, or a compaction has it.
extern "C" bool kedis_rot_put_aside(void* database, uint64_t table) {
  auto* db = static_cast<DBImpl*>(static_cast<DB*>(database)->GetRootDB());
  // Before the lock: this takes the mutex, too.
  const MutableDBOptions options(db->GetDBOptions());
  InstrumentedMutexLock lock(&(db->*Inside::kMutex));
  int level = 0;
  FileMetaData* file = nullptr;
  ColumnFamilyData* family = nullptr;
  auto& versions = db->*Inside::kVersions;
  if (!versions->GetMetadataForFile(table, &level, &file, &family).ok()) return false;
  if (file->being_compacted) return false;
  CompactionInputFiles inputs;
  inputs.level = level;
  inputs.files.push_back(file);
  family->compaction_picker()->PickCompactionForCompactFiles(
      CompactionOptions(), {inputs}, level, family->current()->storage_info(),
      family->GetLatestMutableCFOptions(), options, 0);
  return true;
}

// Registers the listener under a name, for option strings.
extern "C" void kedis_rot_register(const char* name) {
  rocksdb::ObjectLibrary::Default()->AddFactory<EventListener>(
      name, [](const std::string&, std::unique_ptr<EventListener>* guard, std::string*) {
        guard->reset(new Listener());
        return guard->get();
      });
}
