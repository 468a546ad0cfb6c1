// RocksDB's file system as `../disk.rs` needs it: errors of the operating system are retryable, and
// a log has no torn end after a failed write.
//
// RocksDB stops for good ("fatal") after most errors of files, and treats each errno differently.
// Marked as retryable and as an error of one file, every error leads to the same state: writes are
// refused until `DB::Resume` has written the memtables to new files and has begun a new log.
// RocksDB never writes again to a file that had an error.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "db/column_family.h"
#include "db/db_impl/db_impl.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

using rocksdb::Env;
using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using rocksdb::Status;

namespace kedis {

// Defined in `../wal/files.cc`.
std::shared_ptr<FileSystem> FilesWithMarks();

}  // namespace kedis

// Defined in `../disk.rs`.
extern "C" {
// Releases the rest of the reserve; returns whether that makes space.
bool kedis_disk_make_room(const void* disk);
// Whether a compaction may write so many bytes; if not, it fails.
bool kedis_disk_admits_compaction(const void* disk, size_t bytes);
// How many of the wanted bytes a file may preallocate now.
uint64_t kedis_disk_preallocation(const void* disk, uint64_t wanted);
void kedis_disk_failed(const void* disk, const char* text, size_t len);
void kedis_disk_free(const void* disk);
}

namespace {

class Disk final {
 public:
  explicit Disk(const void* rust) : rust_(rust) {}
  ~Disk() { kedis_disk_free(rust_); }

  bool MakeRoom() const { return kedis_disk_make_room(rust_); }
  bool AdmitsCompaction(size_t bytes) const { return kedis_disk_admits_compaction(rust_, bytes); }
  size_t Preallocation(size_t wanted) const { return kedis_disk_preallocation(rust_, wanted); }

  // The error as RocksDB gets it.
  IOStatus Seen(IOStatus status) const {
    if (!status.IsIOError() || status.IsPathNotFound()) return status;
    const std::string text = status.ToString();
    kedis_disk_failed(rust_, text.data(), text.size());
    // Not as `NoSpace`: RocksDB would wait for space in its own way.
    const char* state = status.getState();
    IOStatus seen = status.IsNoSpace() ? IOStatus::IOError(state == nullptr ? "" : state)
                                       : std::move(status);
    seen.SetRetryable(true);
    seen.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFile);
    return seen;
  }

 private:
  const void* const rust_;
};

using DiskRef = std::shared_ptr<const Disk>;

// What a file is for. RocksDB can do without its OPTIONS files.
enum class FileKind { kTable, kOptions, kOther };

FileKind FileKindOf(const std::string& name) {
  if (Slice(name).ends_with(".sst")) return FileKind::kTable;
  return name.find("/OPTIONS-") == std::string::npos ? FileKind::kOther : FileKind::kOptions;
}

class WritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  WritableFile(std::unique_ptr<FSWritableFile>&& file, DiskRef disk, uint64_t size, FileKind kind)
      : FSWritableFileOwnerWrapper(std::move(file)),
        disk_(std::move(disk)),
        size_(size),
        kind_(kind) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    // Compactions can wait for space, and must not take what memtables need. The manifest that they
    // write to cannot wait.
    const bool compacts =
        kind_ == FileKind::kTable && options.io_activity == Env::IOActivity::kCompaction;
    if (compacts && !disk_->AdmitsCompaction(data.size())) {
      return disk_->Seen(IOStatus::NoSpace("memtables need the room that is left"));
    }
    IOStatus done = target()->Append(data, options, debug);
    if (!done.ok()) {
      // A part of the data may have been written.
      IOStatus cut = target()->Truncate(size_, options, debug);
      const bool waits = compacts || kind_ == FileKind::kOptions;
      if (done.IsNoSpace() && cut.ok() && !waits && disk_->MakeRoom()) {
        done = target()->Append(data, options, debug);
        if (!done.ok()) cut = target()->Truncate(size_, options, debug);
      }
      cut.PermitUncheckedError();
    }
    if (done.ok()) size_ += data.size();
    return disk_->Seen(std::move(done));
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    IOStatus done = target()->Truncate(size, options, debug);
    if (done.ok()) size_ = size;
    return disk_->Seen(std::move(done));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return disk_->Seen(target()->Close(options, debug));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    return disk_->Seen(target()->Flush(options, debug));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return disk_->Seen(target()->Sync(options, debug));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return disk_->Seen(target()->Fsync(options, debug));
  }
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* debug) override {
    return disk_->Seen(target()->RangeSync(offset, bytes, options, debug));
  }
  void SetPreallocationBlockSize(size_t size) override { preallocation_ = size; }
  void PrepareWrite(size_t offset, size_t len, const IOOptions& options,
                    IODebugContext* debug) override {
    // There may be less room than when the file was made.
    target()->SetPreallocationBlockSize(disk_->Preallocation(preallocation_));
    target()->PrepareWrite(offset, len, options, debug);
  }

 private:
  const DiskRef disk_;
  uint64_t size_;
  size_t preallocation_ = 0;
  const FileKind kind_;
};

// A read error must not stop compactions for good either.
class RandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  RandomAccessFile(std::unique_ptr<FSRandomAccessFile>&& file, DiskRef disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(std::move(disk)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* debug) const override {
    return disk_->Seen(target()->Read(offset, n, options, result, scratch, debug));
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t n, const IOOptions& options,
                     IODebugContext* debug) override {
    IOStatus done = disk_->Seen(target()->MultiRead(requests, n, options, debug));
    for (size_t i = 0; i < n; ++i) requests[i].status = disk_->Seen(std::move(requests[i].status));
    return done;
  }

 private:
  const DiskRef disk_;
};

class Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(std::unique_ptr<FSDirectory>&& directory, DiskRef disk)
      : FSDirectoryWrapper(std::move(directory)), disk_(std::move(disk)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return disk_->Seen(FSDirectoryWrapper::Fsync(options, debug));
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& what) override {
    return disk_->Seen(FSDirectoryWrapper::FsyncWithDirOptions(options, debug, what));
  }

 private:
  const DiskRef disk_;
};

class Files final : public rocksdb::FileSystemWrapper {
 public:
  Files(const std::shared_ptr<FileSystem>& target, DiskRef disk)
      : FileSystemWrapper(target), disk_(std::move(disk)) {}

  const char* Name() const override { return "kedis.Files"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file,
                           IODebugContext* debug) override {
    IOStatus made = target()->NewWritableFile(name, options, file, debug);
    if (made.IsNoSpace() && FileKindOf(name) != FileKind::kOptions && disk_->MakeRoom()) {
      made = target()->NewWritableFile(name, options, file, debug);
    }
    return Wrap(std::move(made), name, file, 0);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file,
                              IODebugContext* debug) override {
    IOStatus opened = target()->ReopenWritableFile(name, options, file, debug);
    const uint64_t size = opened.ok() ? (*file)->GetFileSize(IOOptions(), debug) : 0;
    return Wrap(std::move(opened), name, file, size);
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file,
                               IODebugContext* debug) override {
    IOStatus opened = disk_->Seen(target()->NewRandomAccessFile(name, options, file, debug));
    if (opened.ok()) file->reset(new RandomAccessFile(std::move(*file), disk_));
    return opened;
  }
  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext* debug) override {
    return disk_->Seen(target()->NewSequentialFile(name, options, file, debug));
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions& options,
                        std::unique_ptr<FSDirectory>* directory,
                        IODebugContext* debug) override {
    IOStatus opened = disk_->Seen(target()->NewDirectory(name, options, directory, debug));
    if (opened.ok()) directory->reset(new Directory(std::move(*directory), disk_));
    return opened;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    return disk_->Seen(target()->RenameFile(from, to, options, debug));
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* debug) override {
    // Not through `Seen`: where links are not supported, RocksDB copies.
    return target()->LinkFile(from, to, options, debug);
  }
  IOStatus SyncFile(const std::string& name, const FileOptions& file_options,
                    const IOOptions& options, bool use_fsync, IODebugContext* debug) override {
    return disk_->Seen(target()->SyncFile(name, file_options, options, use_fsync, debug));
  }

 private:
  IOStatus Wrap(IOStatus made, const std::string& name, std::unique_ptr<FSWritableFile>* file,
                uint64_t size) {
    if (made.ok()) {
      file->reset(new WritableFile(std::move(*file), disk_, size, FileKindOf(name)));
    }
    return disk_->Seen(std::move(made));
  }

  const DiskRef disk_;
};

// As in RocksDB's C interface, which frees it.
struct CEnv {
  Env* rep;
  bool is_default;
};
struct CColumnFamily {
  rocksdb::ColumnFamilyHandle* rep;
};

// Returns whether the status is OK. If it is not, writes its text to `text`, at most `len` bytes.
// `len` becomes the number of bytes written.
bool Report(const Status& status, char* text, size_t* len) {
  const std::string why = status.ok() ? "" : status.ToString();
  *len = why.copy(text, *len);
  return status.ok();
}

}  // namespace

// An environment with this file system. Takes over `disk`.
extern "C" void* kedis_disk_env(const void* disk) {
  auto shared = std::make_shared<const Disk>(disk);
  auto files = std::make_shared<Files>(kedis::FilesWithMarks(), std::move(shared));
  return new CEnv{rocksdb::NewCompositeEnv(files).release(), false};
}

// `DB::Resume` of the database that has this column family.
extern "C" bool kedis_disk_resume(CColumnFamily* family, char* text, size_t* len) {
  auto* handle = static_cast<rocksdb::ColumnFamilyHandleImpl*>(family->rep);
  return Report(handle->db()->Resume(), text, len);
}

// Begins to write out the memtable of this column family. The Rust binding has no
// `allow_write_stall`: with it the caller does not wait during a write stall. If writes are
// stopped, nothing begins.
extern "C" bool kedis_disk_begin_flush(CColumnFamily* family, char* text, size_t* len) {
  auto* handle = static_cast<rocksdb::ColumnFamilyHandleImpl*>(family->rep);
  rocksdb::FlushOptions options;
  options.wait = false;
  options.allow_write_stall = true;
  const Status begun = handle->db()->Flush(options, handle);
  return Report(begun.IsTryAgain() ? Status::OK() : begun, text, len);
}
