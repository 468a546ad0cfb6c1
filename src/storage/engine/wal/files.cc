// A file system of RocksDB that reports to `marks.rs` how far each file of the write-ahead log is
// written and synced. Everything else goes to the default file system unchanged. The file system of
// `../disk/files.cc` is built on it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rocksdb/file_system.h"
#include "util/crc32c.h"
#include "util/string_util.h"

// Defined in `marks.rs`.
extern "C" {
void* kedis_wal_created(const char* path, size_t len);
void kedis_wal_closed(void* log);
void kedis_wal_appended(void* log, const char* data, size_t len);
uint64_t kedis_wal_written(const void* log);
int kedis_wal_before_sync(const void* log);
void kedis_wal_synced(const void* log, uint64_t up_to, bool ok);
bool kedis_wal_forget(const char* path, size_t len);
}

namespace {

using rocksdb::DataVerificationInfo;
using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

class LogFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  LogFile(std::unique_ptr<FSWritableFile>&& file, void* log)
      : FSWritableFileOwnerWrapper(std::move(file)), log_(log) {}
  ~LogFile() override { kedis_wal_closed(log_); }

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    return Appended(data, target()->Append(data, options, dbg));
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const DataVerificationInfo& verification, IODebugContext* dbg) override {
    return Appended(data, target()->Append(data, options, verification, dbg));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return Synced([&] { return target()->Sync(options, dbg); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return Synced([&] { return target()->Fsync(options, dbg); });
  }

 private:
  IOStatus Appended(const Slice& data, IOStatus done) {
    if (done.ok()) kedis_wal_appended(log_, data.data(), data.size());
    return done;
  }
  // What is written is looked up first: records that come while the value log is synced may name
  // what it does not sync.
  template <typename Sync>
  IOStatus Synced(Sync sync) {
    const uint64_t up_to = kedis_wal_written(log_);
    const int error = kedis_wal_before_sync(log_);
    IOStatus done = error == 0 ? sync()
                               : IOStatus::IOError("While syncing the value log", rocksdb::errnoStr(error));
    kedis_wal_synced(log_, up_to, done.ok());
    return done;
  }

  void* const log_;
};

class Files final : public rocksdb::FileSystemWrapper {
 public:
  explicit Files(const std::shared_ptr<FileSystem>& base) : FileSystemWrapper(base) {}
  const char* Name() const override { return "kedis.FilesWithMarks"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    IOStatus made = target()->NewWritableFile(path, options, file, dbg);
    if (made.ok()) {
      if (void* log = kedis_wal_created(path.data(), path.size())) {
        file->reset(new LogFile(std::move(*file), log));
      }
    }
    return made;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    // Before the file is deleted: a slot without a file means a loss.
    if (!kedis_wal_forget(path.data(), path.size())) {
      return IOStatus::IOError("the marks of the write-ahead log cannot be synced", path);
    }
    return target()->DeleteFile(path, options, dbg);
  }
};

}  // namespace

namespace kedis {

std::shared_ptr<FileSystem> FilesWithMarks() {
  return std::make_shared<Files>(FileSystem::Default());
}

}  // namespace kedis

// The checksum of a fragment of the log.
extern "C" uint32_t kedis_wal_checksum(const char* data, size_t len) {
  return rocksdb::crc32c::Mask(rocksdb::crc32c::Value(data, len));
}
