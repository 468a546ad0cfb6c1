// Takes tables out of the manifest of a database that is not open. See manifest.rs.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "db/column_family.h"
#include "db/version_edit.h"
#include "db/version_set.h"
#include "db/version_util.h"
#include "file/filename.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/status.h"
#include "rocksdb/table_properties.h"
#include "rocksdb/types.h"
#include "table/unique_id_impl.h"

namespace {

using rocksdb::ColumnFamilyData;
using rocksdb::ColumnFamilyDescriptor;
using rocksdb::DB;
using rocksdb::FileMetaData;
using rocksdb::FSDirectory;
using rocksdb::IOOptions;
using rocksdb::OfflineManifestWriter;
using rocksdb::Options;
using rocksdb::ReadOptions;
using rocksdb::Slice;
using rocksdb::SstFileReader;
using rocksdb::Status;
using rocksdb::UniqueId64x2;
using rocksdb::VersionEdit;
using rocksdb::VersionStorageInfo;
using rocksdb::WriteOptions;

struct Bytes {
  const char* data;
  size_t len;

  explicit Bytes(const Slice& slice) : data(slice.data()), len(slice.size()) {}
};

// `RawTable` in manifest.rs.
struct Table {
  Bytes family;
  uint64_t number;
  Bytes first;
  Bytes last;
  Bytes why;
};

// `may_take_out` in manifest.rs.
using MayTakeOut = bool (*)(void* context, const Table* tables, size_t count);

// A table that cannot be opened, and where it stands in the manifest.
struct Found {
  ColumnFamilyData* family;
  int level;
  const FileMetaData* file;
  std::string why;
};

// Whether an error means that the file will never be a table again: it is missing or damaged. Others,
// as too many open files, may be over soon.
bool IsLost(const Status& status) { return status.IsCorruption() || status.IsPathNotFound(); }

// Opens a table, and compares it with what the manifest knows of it, as RocksDB does.
Status Open(const Options& options, const std::string& path, const FileMetaData& file) {
  uint64_t size = 0;
  Status status = options.env->GetFileSize(path, &size);
  if (!status.ok()) return status;
  if (size != file.fd.GetFileSize()) {
    return Status::Corruption(path + " has " + std::to_string(size) + " bytes, and had " +
                              std::to_string(file.fd.GetFileSize()));
  }
  SstFileReader reader(options);
  status = reader.Open(path);
  if (!status.ok() || file.unique_id == rocksdb::kNullUniqueId64x2) return status;
  const auto properties = reader.GetTableProperties();
  UniqueId64x2 id{};
  status = rocksdb::GetSstInternalUniqueId(properties->db_id, properties->db_session_id,
                                           properties->orig_file_number, &id, /*force=*/true);
  if (!status.ok() || id != file.unique_id) {
    return Status::Corruption(path + " is not the table that was written with this name");
  }
  return status;
}

// Tables of all column families that cannot be opened.
Status FindLost(const Options& options, const std::string& dir, OfflineManifestWriter* manifest,
                std::vector<Found>* lost) {
  for (ColumnFamilyData* family : *manifest->Versions().GetColumnFamilySet()) {
    if (!family->initialized()) continue;
    const VersionStorageInfo* storage = family->current()->storage_info();
    for (int level = 0; level < storage->num_levels(); level++) {
      for (const FileMetaData* file : storage->LevelFiles(level)) {
        const std::string path = rocksdb::MakeTableFileName(dir, file->fd.GetNumber());
        const Status opened = Open(options, path, *file);
        if (IsLost(opened)) {
          lost->push_back({family, level, file, opened.ToString()});
        } else if (!opened.ok()) {
          return opened;
        }
      }
    }
  }
  return Status::OK();
}

// No number of a file in the directory is used again: a new manifest could replace one that a process
// was writing when it was killed.
Status SkipUsedNumbers(const Options& options, const std::string& dir, OfflineManifestWriter* manifest) {
  std::vector<std::string> names;
  const Status status = options.env->GetChildren(dir, &names);
  for (const std::string& name : names) {
    uint64_t number = 0;
    rocksdb::FileType type = rocksdb::kTempFile;
    if (rocksdb::ParseFileName(name, &number, &type)) manifest->Versions().MarkFileNumberUsed(number);
  }
  return status;
}

Status TakeOut(const Options& options, const std::string& dir, MayTakeOut may_take_out,
               void* context) {
  std::vector<std::string> names;
  Status status = DB::ListColumnFamilies(options, dir, &names);
  if (!status.ok()) return status;
  std::vector<ColumnFamilyDescriptor> families;
  families.reserve(names.size());
  for (const std::string& name : names) families.emplace_back(name, options);
  OfflineManifestWriter manifest(options, dir);
  status = manifest.Recover(families);
  if (!status.ok()) return status;

  std::vector<Found> lost;
  status = FindLost(options, dir, &manifest, &lost);
  if (!status.ok() || lost.empty()) return status;
  std::vector<Table> tables;
  tables.reserve(lost.size());
  std::map<ColumnFamilyData*, VersionEdit> edits;
  for (const Found& found : lost) {
    const FileMetaData* file = found.file;
    tables.push_back({Bytes(found.family->GetName()), file->fd.GetNumber(),
                      Bytes(file->smallest.user_key()), Bytes(file->largest.user_key()),
                      Bytes(found.why)});
    VersionEdit& edit = edits[found.family];
    edit.SetColumnFamily(found.family->GetID());
    edit.DeleteFile(found.level, file->fd.GetNumber());
  }
  if (!may_take_out(context, tables.data(), tables.size())) return Status::OK();

  status = SkipUsedNumbers(options, dir, &manifest);
  if (!status.ok()) return status;
  std::unique_ptr<FSDirectory> directory;
  status = options.env->GetFileSystem()->NewDirectory(dir, IOOptions(), &directory, nullptr);
  for (auto edit = edits.begin(); status.ok() && edit != edits.end(); ++edit) {
    status = manifest.LogAndApply(ReadOptions(), WriteOptions(), edit->first, &edit->second,
                                  directory.get());
  }
  return status;
}

}  // namespace

// Returns null, or an error that the caller frees.
extern "C" char* kedis_manifest_take_out(const Options* options, const char* dir, size_t dir_len,
                                         MayTakeOut may_take_out, void* context) noexcept {
  const std::string path(dir, dir_len);
  rocksdb::FileLock* lock = nullptr;
  Status status = options->env->LockFile(rocksdb::LockFileName(path), &lock);
  if (status.ok()) {
    status = TakeOut(*options, path, may_take_out, context);
    options->env->UnlockFile(lock).PermitUncheckedError();
  }
  return status.ok() ? nullptr : strdup(status.ToString().c_str());
}
