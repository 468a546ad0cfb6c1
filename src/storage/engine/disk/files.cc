// RocksDB's file system as `../disk.rs` needs it: errors of the operating system are retryable, and
// a log has no torn end after a failed write.
//
// RocksDB stops for good ("fatal") after most errors of files, and treats each errno differently.
// Marked as retryable and as an error of one file, every error leads to the same state: writes are
// refused until `DB::Resume` has written the memtables to new files and has begun a new log.
// RocksDB never writes again to a file that had an error.
//
// Reads of threads that must not wait for the disk find what the page cache holds, and otherwise
// fail with `Busy`.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "db/column_family.h"
#include "db/db_impl/db_impl.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "util/string_util.h"

using rocksdb::DBImpl;
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
// Makes durable what rows of memtables name in the value log; returns the errno, or 0.
int32_t kedis_disk_sync_values(const void* disk);
// How many of the wanted bytes a file may preallocate now.
uint64_t kedis_disk_preallocation(const void* disk, uint64_t wanted);
void kedis_disk_failed(const void* disk, const char* text, size_t len);
void kedis_disk_free(const void* disk);
}

// Defined in `../waiting.rs`: an IO thread reads a table and may wait for the disk; a thread is about
// to read so many bytes, and may have to wait for the memory of them; a thread is about to open a
// table; whether IO threads wait for a processor.
extern "C" void kedis_io_thread_reads();
extern "C" void kedis_long_read(size_t bytes);
extern "C" void kedis_opens_table();
extern "C" bool kedis_io_threads_wait();

namespace {

class Disk final {
 public:
  explicit Disk(const void* rust) : rust_(rust) {}
  ~Disk() { kedis_disk_free(rust_); }

  bool MakeRoom() const { return kedis_disk_make_room(rust_); }
  bool AdmitsCompaction(size_t bytes) const { return kedis_disk_admits_compaction(rust_, bytes); }
  IOStatus SyncValues() const {
    const int error = kedis_disk_sync_values(rust_);
    if (error == 0) return IOStatus::OK();
    return IOStatus::IOError("While syncing the value log", rocksdb::errnoStr(error));
  }
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
enum class FileKind { kTable, kBlobs, kOptions, kOther };

FileKind FileKindOf(const std::string& name) {
  if (Slice(name).ends_with(".sst")) return FileKind::kTable;
  if (Slice(name).ends_with(".blob")) return FileKind::kBlobs;
  return name.find("/OPTIONS-") == std::string::npos ? FileKind::kOther : FileKind::kOptions;
}

// Bytes of tables and blob files that were written by compactions, and by others.
std::atomic<uint64_t> written_by_compactions{0};
std::atomic<uint64_t> written_by_flushes{0};

void CountWritten(const IOOptions& options, FileKind kind, size_t bytes) {
  if (kind != FileKind::kTable && kind != FileKind::kBlobs) return;
  const bool compacts = options.io_activity == Env::IOActivity::kCompaction;
  auto& written = compacts ? written_by_compactions : written_by_flushes;
  written.fetch_add(bytes, std::memory_order_relaxed);
}

// How long a flush or a compaction runs before it looks whether to pause, and how long it pauses.
constexpr auto kRun = std::chrono::milliseconds(1);
constexpr auto kPause = std::chrono::microseconds(300);

// Lets IO threads run if they wait for a processor. Flushes and compactions never sleep by themselves.
// A kernel that has put one of them alone on a processor lets all others share the rest, whatever
// the priorities, until it balances its queues, which takes 100 ms and more. A processor that is
// idle takes a waiting thread at once.
void LetIoThreadsRun(const IOOptions& options) {
  using Activity = Env::IOActivity;
  if (options.io_activity != Activity::kFlush && options.io_activity != Activity::kCompaction) return;
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point looked;
  if (Clock::now() - looked < kRun) return;
  if (kedis_io_threads_wait()) std::this_thread::sleep_for(kPause);
  looked = Clock::now();
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
    if (kind_ == FileKind::kTable || kind_ == FileKind::kBlobs) LetIoThreadsRun(options);
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
    if (done.ok()) {
      size_ += data.size();
      CountWritten(options, kind_, data.size());
    }
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
    IOStatus done = SyncBefore(options);
    if (done.ok()) done = target()->Sync(options, debug);
    return disk_->Seen(std::move(done));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    IOStatus done = SyncBefore(options);
    if (done.ok()) done = target()->Fsync(options, debug);
    return disk_->Seen(std::move(done));
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
  // A durable row must not name a value that is not. What compactions write was in tables before.
  IOStatus SyncBefore(const IOOptions& options) const {
    const bool compacts = options.io_activity == Env::IOActivity::kCompaction;
    return kind_ != FileKind::kTable || compacts ? IOStatus::OK() : disk_->SyncValues();
  }

  const DiskRef disk_;
  uint64_t size_;
  size_t preallocation_ = 0;
  const FileKind kind_;
};

// Whether reads of this thread may wait for the disk. See `../waiting.rs`.
thread_local bool may_wait = true;
// Whether this is a thread that serves clients.
thread_local bool is_io_thread = false;

// Reads of tables that may have waited for the disk, and those of IO threads among them.
std::atomic<uint64_t> waiting_reads{0};
std::atomic<uint64_t> waiting_reads_of_io_threads{0};
// Every such read takes so much longer, for tests and measurements.
std::atomic<uint64_t> read_delay_us{0};

// The status of a read that would wait for the disk on a thread that may not. RocksDB passes it on
// unchanged, and uses it for nothing else in its reads.
IOStatus WouldWait() { return IOStatus::Busy("not in memory"); }

// Reads of tables and blob files, and their bytes.
std::atomic<uint64_t> table_reads{0};
std::atomic<uint64_t> table_read_bytes{0};

void CountRead(size_t bytes) {
  table_reads.fetch_add(1, std::memory_order_relaxed);
  table_read_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

// A read of so many bytes has to wait for memory.
constexpr size_t kLongRead = 1 << 20;

// So many bytes are about to be read on a thread that may wait for the disk.
void BeginWaitingRead(size_t bytes) {
  if (bytes >= kLongRead) kedis_long_read(bytes);
  waiting_reads.fetch_add(1, std::memory_order_relaxed);
  if (is_io_thread) {
    waiting_reads_of_io_threads.fetch_add(1, std::memory_order_relaxed);
    kedis_io_thread_reads();
  }
  const uint64_t us = read_delay_us.load(std::memory_order_relaxed);
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// A table or blob file that is read through the page cache. Unlike RocksDB's own class it can read
// what is in the page cache without waiting for the disk.
class CachedFile final : public FSRandomAccessFile {
 public:
  CachedFile(int fd, const std::string& name, DiskRef disk)
      : fd_(fd), name_(name), disk_(std::move(disk)) {}
  ~CachedFile() override { close(fd_); }

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext*) const override {
    LetIoThreadsRun(options);
    *result = Slice(scratch, 0);
    if (!may_wait) {
      // A part of the range may be in memory.
      if (ReadCached(offset, n, scratch) != static_cast<ssize_t>(n)) return WouldWait();
      CountRead(n);
      *result = Slice(scratch, n);
      return IOStatus::OK();
    }
    BeginWaitingRead(n);
    size_t done = 0;
    while (done < n) {
      const ssize_t some = pread(fd_, scratch + done, n - done, static_cast<off_t>(offset + done));
      if (some < 0 && errno == EINTR) continue;
      if (some < 0) {
        const std::string what = "While reading " + std::to_string(n) + " bytes at " +
                                 std::to_string(offset) + " of " + name_;
        return disk_->Seen(IOStatus::IOError(what, rocksdb::errnoStr(errno)));
      }
      if (some == 0) break;  // The end of the file.
      done += static_cast<size_t>(some);
    }
    CountRead(done);
    *result = Slice(scratch, done);
    return IOStatus::OK();
  }

  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions&, IODebugContext*) override {
#ifdef OS_LINUX
    if (may_wait && readahead(fd_, static_cast<off_t>(offset), n) == 0) return IOStatus::OK();
#else
    (void)offset, (void)n;
#endif
    return IOStatus::NotSupported("Prefetch");
  }

  void Hint(AccessPattern pattern) override {
#ifdef OS_LINUX
    if (pattern == kRandom) posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)pattern;
#endif
  }

  IOStatus GetFileSize(uint64_t* size) override {
    struct stat found;
    if (fstat(fd_, &found) != 0) {
      return disk_->Seen(IOStatus::IOError("While asking the size of " + name_,
                                           rocksdb::errnoStr(errno)));
    }
    *size = static_cast<uint64_t>(found.st_size);
    return IOStatus::OK();
  }

 private:
  // Reads what the page cache holds. Less than `n`, or an error: a part of it is not there, or the
  // file system cannot tell.
  ssize_t ReadCached(uint64_t offset, size_t n, char* scratch) const {
#ifdef RWF_NOWAIT
    struct iovec into = {scratch, n};
    return preadv2(fd_, &into, 1, static_cast<off_t>(offset), RWF_NOWAIT);
#else
    (void)offset, (void)n, (void)scratch;
    return -1;
#endif
  }

  const int fd_;
  const std::string name_;
  const DiskRef disk_;
};

// Another file, or one that is read past the page cache. A read error must not stop compactions for
// good either.
class RandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  RandomAccessFile(std::unique_ptr<FSRandomAccessFile>&& file, DiskRef disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(std::move(disk)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result,
                char* scratch, IODebugContext* debug) const override {
    if (!may_wait) return WouldWait();
    BeginWaitingRead(n);
    IOStatus done = target()->Read(offset, n, options, result, scratch, debug);
    if (done.ok()) CountRead(result->size());
    return disk_->Seen(std::move(done));
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t n, const IOOptions& options,
                     IODebugContext* debug) override {
    if (!may_wait) return WouldWait();
    size_t bytes = 0;
    for (size_t i = 0; i < n; ++i) bytes += requests[i].len;
    BeginWaitingRead(bytes);
    IOStatus done = disk_->Seen(target()->MultiRead(requests, n, options, debug));
    for (size_t i = 0; i < n; ++i) {
      if (requests[i].status.ok()) CountRead(requests[i].result.size());
      requests[i].status = disk_->Seen(std::move(requests[i].status));
    }
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
    // Opening a file may wait, too.
    if (!may_wait) return WouldWait();
    kedis_opens_table();
    const FileKind kind = FileKindOf(name);
    const bool is_table = kind == FileKind::kTable || kind == FileKind::kBlobs;
    if (is_table && !options.use_direct_reads && !options.use_mmap_reads) {
      return OpenCached(name, file);
    }
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
  IOStatus OpenCached(const std::string& name, std::unique_ptr<FSRandomAccessFile>* file) {
    int fd;
    do {
      fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
      const std::string what = "While opening " + name;
      const std::string why = rocksdb::errnoStr(errno);
      return disk_->Seen(errno == ENOENT ? IOStatus::PathNotFound(what, why)
                                         : IOStatus::IOError(what, why));
    }
    file->reset(new CachedFile(fd, name, disk_));
    return IOStatus::OK();
  }

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

// Drops the flush requests that wait since an error stopped background work, before `DB::Resume`.
//
// Recovery requests a flush of each column family, but `DBImpl::EnqueuePendingFlush` refuses one for
// a family that is in the queue already, and `DBImpl::BackgroundFlush` drops requests of before the
// error. Recovery would then wait for ever for a flush that nobody requests. Later ones are not
// requested before it ends: see `../heal.rs`.
template <typename Requests>
void Drop(Requests& queue, int& unscheduled, rocksdb::ErrorHandler& errors) {
  // After another error `DB::Resume` requests no flushes.
  if (!errors.IsDBStopped() && !errors.IsSoftErrorNoBGWork()) return;
  for (auto& request : queue) {
    for (auto& [family, memtable] : request.cfd_to_max_mem_id_to_persist) {
      family->set_queued_for_flush(false);
      family->UnrefAndTryDelete();
    }
  }
  queue.clear();
  unscheduled = 0;
}

// C++ permits to name private members in an explicit instantiation of a template only.
template <auto Queue, auto Unscheduled, auto Errors>
struct QueuedFlushes {
  friend void DropQueuedFlushes(DBImpl& db) {
    rocksdb::InstrumentedMutexLock lock(db.mutex());
    Drop(db.*Queue, db.*Unscheduled, db.*Errors);
  }
};
void DropQueuedFlushes(DBImpl& db);
template struct QueuedFlushes<&DBImpl::flush_queue_, &DBImpl::unscheduled_flushes_,
                              &DBImpl::error_handler_>;

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

// Whether reads of this thread may wait for the disk from now on. Returns whether they could.
extern "C" bool kedis_reads_may_wait(bool may) { return std::exchange(may_wait, may); }

// Marks this thread as one that serves clients.
extern "C" void kedis_reads_on_io_thread() { is_io_thread = true; }

// The number of reads that may have waited for the disk, and of those on IO threads.
extern "C" void kedis_waiting_reads(uint64_t* all, uint64_t* of_io_threads) {
  *all = waiting_reads.load(std::memory_order_relaxed);
  *of_io_threads = waiting_reads_of_io_threads.load(std::memory_order_relaxed);
}

// Reads of tables and blob files, and their bytes.
extern "C" void kedis_disk_read(uint64_t* reads, uint64_t* bytes) {
  *reads = table_reads.load(std::memory_order_relaxed);
  *bytes = table_read_bytes.load(std::memory_order_relaxed);
}

// Bytes of tables and blob files that flushes and compactions have written.
extern "C" void kedis_disk_written(uint64_t* by_flushes, uint64_t* by_compactions) {
  *by_flushes = written_by_flushes.load(std::memory_order_relaxed);
  *by_compactions = written_by_compactions.load(std::memory_order_relaxed);
}

// Makes each read that may wait for the disk take so many microseconds longer.
extern "C" void kedis_delay_reads(uint64_t us) {
  read_delay_us.store(us, std::memory_order_relaxed);
}

// As for a read of a table: so many bytes of another file are about to be read by a thread that may
// wait for the disk.
extern "C" void kedis_begin_waiting_read(size_t bytes) { BeginWaitingRead(bytes); }

// Keeps iterators of tables with these options from reading more than a block at a time, unless
// they are told to: a thread that must not wait would find less of it in memory.
extern "C" void kedis_no_readahead(const rocksdb::Options* options) {
  auto* table = options->table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
  if (table != nullptr) table->max_auto_readahead_size = 0;
}

// `DB::Resume` of the database that has this column family.
extern "C" bool kedis_disk_resume(CColumnFamily* family, char* text, size_t* len) {
  auto* handle = static_cast<rocksdb::ColumnFamilyHandleImpl*>(family->rep);
  DropQueuedFlushes(*handle->db());
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
