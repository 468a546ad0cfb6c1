//! RDB files as streams: everything besides values.
//!
//! ```text
//! REDIS ‖ version (4 digits), or VALKEY ‖ version (3 digits)
//! FA name text              aux field of the writer
//! F5 code                   a function library
//! F7 …                      data of a module besides keys
//! FE DB                     the DB of the following keys
//! FB keys, expires          number of keys, and of those that expire
//! [FC ms (8) | FD s (4)] [F8 idle s | F9 frequency (1)] type ‖ key ‖ value
//! FF CRC-64 (8; 0: none)
//! ```

use super::decode::{kind_of, read_value};
use super::encode::{Encoder, length, magic};
use super::input::{Input, Stream};
use super::module::{self, ModuleId};
use super::reader::Reader;
use super::{Dialect, Element, Error, Result, VERSION_READ, VERSION_VALKEY, kind};
use crate::base::hash::crc64;
use crate::base::time::UnixMs;
use crate::encoding::ValueType;
use std::io::{BufRead, Write};

/// Opcodes, which take the place of a value type.
mod opcode {
    pub const SLOT_IMPORT: u8 = 243;
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION: u8 = 245;
    pub const FUNCTION_PRE_GA: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZE_DB: u8 = 251;
    pub const EXPIRE_MS: u8 = 252;
    pub const EXPIRE_S: u8 = 253;
    pub const SELECT_DB: u8 = 254;
    pub const END: u8 = 255;
}

/// The first version with a checksum.
const VERSION_CRC: u16 = 5;

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The next item of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// An aux field of the writer.
    Aux {
        /// The name.
        name: Vec<u8>,
        /// The text.
        text: Vec<u8>,
    },
    /// The code of a function library.
    Function(Vec<u8>),
    /// Data of a module besides keys, which were skipped.
    ModuleAux,
    /// The DB of the following keys.
    SelectDb(u64),
    /// The numbers of keys in the DB; hints only.
    Sizes {
        /// All keys.
        keys: u64,
        /// Keys with an expiry.
        expires: u64,
    },
    /// A key: call [`FileReader::key`], then [`FileReader::value`].
    Key(Head),
    /// The end of the file; the checksum is correct.
    End,
}

/// The attributes of a value besides the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Its type number, see [`super::kind`].
    pub kind: u8,
    /// The id of a module's value.
    pub module: ModuleId,
    /// When the key expires, Unix ms; 0 for never.
    pub expire_ms: UnixMs,
    /// Seconds since the last access.
    pub idle_s: Option<u64>,
    /// Access frequency (LFU).
    pub frequency: Option<u8>,
}

impl Head {
    /// The type of the value.
    ///
    /// # Errors
    /// It is not known, or not supported.
    pub fn value_type(&self) -> Result<ValueType> {
        match self.kind {
            kind::MODULE_2 => self.module.value_type(),
            number => kind_of(number),
        }
    }
}

/// Reads a file from its beginning to its end.
#[derive(Debug)]
pub struct FileReader<R> {
    reader: Reader<Stream<R>>,
    version: u16,
    dialect: Dialect,
    key: Vec<u8>,
}

impl<R: BufRead> FileReader<R> {
    /// Reads the head of a file. Strings may have up to `max_string` bytes.
    pub fn open(source: R, max_string: u64) -> Result<FileReader<R>> {
        let mut reader = Reader::new(Stream::new(source), max_string);
        let no_file = Error::Corrupt("this is no RDB file");
        let magic = reader.input.array::<9>()?;
        let (dialect, digits) = match (magic.strip_prefix(b"REDIS"), magic.strip_prefix(b"VALKEY"))
        {
            (Some(digits), _) => (Dialect::Redis, digits),
            (_, Some(digits)) => (Dialect::Valkey, digits),
            _ => return Err(no_file),
        };
        let version = std::str::from_utf8(digits).ok();
        let version: u16 = version.and_then(|v| v.parse().ok()).ok_or(no_file)?;
        let known = match dialect {
            Dialect::Redis => (1..=VERSION_READ).contains(&version),
            Dialect::Valkey => version == VERSION_VALKEY,
        };
        if !known {
            return Err(Error::Version(version));
        }
        Ok(FileReader {
            reader,
            version,
            dialect,
            key: Vec::new(),
        })
    }

    /// The file's version.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The number of bytes read.
    pub fn position(&self) -> u64 {
        self.reader.input.position()
    }

    /// The source, which stands behind the end of the file.
    pub fn into_inner(self) -> R {
        self.reader.input.into_inner()
    }

    /// The key of the last [`Entry::Key`].
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Reads the next item. The value of the previous key must have been read.
    #[allow(clippy::should_implement_trait)] // it fails, and the end is an entry
    pub fn next(&mut self) -> Result<Entry> {
        let mut head = Head::default();
        let mut has_head = false;
        loop {
            let code = self.reader.input.byte()?;
            match code {
                opcode::EXPIRE_MS => head.expire_ms = checked(self.reader.time_ms()?)?,
                opcode::EXPIRE_S => {
                    let seconds = u32::from_le_bytes(self.reader.input.array()?);
                    head.expire_ms = checked(UnixMs(u64::from(seconds) * 1000))?;
                }
                opcode::IDLE => head.idle_s = Some(self.reader.length()?),
                opcode::FREQUENCY => head.frequency = Some(self.reader.input.byte()?),
                _ if has_head && code >= opcode::SLOT_IMPORT => {
                    return Err(Error::Corrupt("a time that belongs to no key"));
                }
                opcode::SLOT_IMPORT.. => match self.other(code)? {
                    Some(entry) => return Ok(entry),
                    None => continue,
                },
                kind => {
                    head.kind = kind;
                    self.reader.string(&mut self.key)?;
                    if kind == kind::MODULE_2 {
                        head.module = ModuleId(self.reader.length()?);
                    }
                    return Ok(Entry::Key(head));
                }
            }
            has_head = true;
        }
    }

    /// Reads an item other than a key; `None` if it is ignored.
    fn other(&mut self, code: u8) -> Result<Option<Entry>> {
        let reader = &mut self.reader;
        let mut text = Vec::new();
        Ok(Some(match code {
            opcode::AUX => {
                let mut name = Vec::new();
                reader.string(&mut name)?;
                reader.string(&mut text)?;
                Entry::Aux { name, text }
            }
            opcode::SELECT_DB => Entry::SelectDb(reader.length()?),
            opcode::RESIZE_DB => Entry::Sizes {
                keys: reader.length()?,
                expires: reader.length()?,
            },
            opcode::FUNCTION => {
                reader.string(&mut text)?;
                Entry::Function(text)
            }
            opcode::MODULE_AUX => {
                self.skip_module_aux()?;
                Entry::ModuleAux
            }
            // Cluster slots: their numbers of keys.
            opcode::SLOT_INFO => {
                for _ in 0..3 {
                    reader.length()?;
                }
                return Ok(None);
            }
            opcode::END => {
                self.end()?;
                Entry::End
            }
            opcode::FUNCTION_PRE_GA => {
                return Err(Error::Unsupported(
                    "functions of release candidates of Redis 7",
                ));
            }
            _ => return Err(Error::Unsupported("slots that are being imported")),
        }))
    }

    fn end(&mut self) -> Result<()> {
        if self.version < VERSION_CRC {
            return Ok(());
        }
        let computed = self.reader.input.crc();
        let stored = u64::from_le_bytes(self.reader.input.array()?);
        match stored == computed || stored == 0 {
            true => Ok(()),
            false => Err(Error::Envelope),
        }
    }

    /// Skips a module's data: values with their types, up to an end mark.
    fn skip_module_aux(&mut self) -> Result<()> {
        let reader = &mut self.reader;
        // The module, and whether the data come before or after the keys.
        for _ in 0..3 {
            reader.length()?;
        }
        let mut text = Vec::new();
        loop {
            match reader.length()? {
                0 => return Ok(()),
                1 | 2 => drop(reader.length()?),
                3 => drop(reader.input.array::<4>()?),
                4 => drop(reader.input.array::<8>()?),
                5 => reader.string(&mut text)?,
                _ => return Err(Error::Corrupt("a module's value")),
            }
        }
    }

    /// Reads the value of the last key, see [`read_value`].
    pub fn value<E: From<Error>>(
        &mut self,
        head: Head,
        mut each: impl FnMut(Element<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        match head.kind {
            kind::MODULE_2 => module::read(&mut self.reader, head.module, &mut each),
            number => read_value(&mut self.reader, number, self.dialect, each),
        }
    }
}

/// Negative times become 1 ms: such a key has expired long ago.
fn checked(expire_ms: UnixMs) -> Result<UnixMs> {
    match i64::try_from(expire_ms.0) {
        Ok(_) => Ok(expire_ms.max(UnixMs(1))),
        Err(_) => Ok(UnixMs(1)),
    }
}

/// Writes a file.
pub struct FileWriter<W> {
    sink: W,
    crc: u64,
    /// Bytes to be written.
    pub buffer: Vec<u8>,
    /// Writes values into the buffer; see [`Outlet::flush`].
    pub encoder: Encoder,
    written: u64,
}

impl<W: Write> FileWriter<W> {
    /// Writes the head of a file. `has_times`: hashes may have fields with times.
    pub fn new(sink: W, compress: bool, has_times: bool) -> FileWriter<W> {
        FileWriter {
            sink,
            crc: 0,
            buffer: magic(has_times).to_vec(),
            encoder: Encoder::new(compress),
            written: 0,
        }
    }

    /// Writes an aux field.
    pub fn aux(&mut self, name: &[u8], text: &[u8]) {
        self.buffer.push(opcode::AUX);
        self.encoder.string(name, &mut self.buffer);
        self.encoder.string(text, &mut self.buffer);
    }

    /// Writes the code of a function library.
    pub fn function(&mut self, code: &[u8]) {
        self.buffer.push(opcode::FUNCTION);
        self.encoder.string(code, &mut self.buffer);
    }

    /// Selects the DB of the following keys, with hints for its numbers of keys.
    pub fn select_db(&mut self, db: u64, keys: u64, expires: u64) {
        self.buffer.push(opcode::SELECT_DB);
        length(db, &mut self.buffer);
        self.buffer.push(opcode::RESIZE_DB);
        length(keys, &mut self.buffer);
        length(expires, &mut self.buffer);
    }

    /// Sets the expiry of the next key, in Unix ms.
    pub fn expires(&mut self, expire_ms: UnixMs) {
        self.buffer.push(opcode::EXPIRE_MS);
        self.buffer.extend_from_slice(&expire_ms.0.to_le_bytes());
    }

    /// Bytes of the file so far.
    pub fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Whether nothing was written; never true, since the head is written first.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the end of the file; returns the sink.
    pub fn end(mut self) -> std::io::Result<W> {
        self.buffer.push(opcode::END);
        let crc = crc64(self.crc, &self.buffer);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.sink.write_all(&self.buffer)?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    /// The encoder, its buffer, and the outlet that empties the buffer.
    pub fn parts(&mut self) -> (&mut Encoder, &mut Vec<u8>, Outlet<'_, W>) {
        let outlet = Outlet {
            sink: &mut self.sink,
            crc: &mut self.crc,
            written: &mut self.written,
        };
        (&mut self.encoder, &mut self.buffer, outlet)
    }
}

/// Writes a [`FileWriter`]'s buffer to its sink.
pub struct Outlet<'w, W> {
    sink: &'w mut W,
    crc: &'w mut u64,
    written: &'w mut u64,
}

impl<W: Write> Outlet<'_, W> {
    /// Writes the buffer to the sink if it is full.
    pub fn flush(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        if buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        *self.crc = crc64(*self.crc, buffer);
        *self.written += buffer.len() as u64;
        self.sink.write_all(buffer)?;
        buffer.clear();
        buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
