//! The bytes of an input: a file, standard input, a member of a zip archive; plain or gzip (recognised by the first bytes,
//! not by the name), within limits. A file is read piece by piece, as often as needed; what cannot be opened twice is held
//! ([`Held`]). UTF-16, which some terminals write, is converted to UTF-8.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use super::held::{Held, HeldReader, read_limited, too_long};
use crate::error::MarketError;
use crate::limits::{IMPORT_FILES_MAX, TEXT_FILE_BYTES_MAX};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Byte order marks of UTF-16.
const UTF16_MARKS: [&[u8; 2]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// Bytes of a compressed file that are read at once.
const COMPRESSED_BYTES: usize = 256 << 10;
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// The path that means standard input, and the name of an input that has none.
const STDIN: &str = "-";
/// Folders whose files are descriptors and devices; their names mean nothing.
const DESCRIPTORS: [&str; 2] = ["/dev", "/proc"];

/// Files that are read while others are still being fetched.
pub trait Arrivals: fmt::Debug + Send + Sync {
    /// Waits until a file is there, whole.
    ///
    /// # Errors
    /// [`MarketError::Refused`] where it cannot be fetched.
    fn wait(&self, file: &Path) -> Result<(), MarketError>;
}

type Archive = ZipArchive<HeldReader>;

#[derive(Clone)]
enum InputPlace {
    File(PathBuf),
    /// A file that may not be there yet.
    Arriving(PathBuf, Arc<dyn Arrivals>),
    /// Standard input or a pipe, which can be read only once.
    Held(Held),
    /// A member of an archive, and the folder for what it decompresses to.
    Member(Archive, usize, Option<Arc<Path>>),
}

/// One input: a file, or a member of an archive.
#[derive(Clone)]
pub(crate) struct Input {
    place: InputPlace,
    /// As named by the user.
    pub shown: String,
    /// Its name without folders.
    pub name: String,
}

impl Input {
    /// Keys and values of the folders `KEY=VALUE` above it, the nearest first, as lakes have them; percent signs and two digits are
    /// a byte.
    pub fn partitions(&self) -> Vec<(String, String)> {
        let mut folders: Vec<&str> = self.shown.split(['/', '\\']).collect();
        folders.pop();
        let named = folders.into_iter().rev().filter_map(|folder| folder.split_once('='));
        named.map(|(key, value)| (key.to_owned(), percent_decoded(value))).collect()
    }

    /// Its content, not yet decompressed. Waits for a file that has not arrived.
    ///
    /// # Errors
    /// [`MarketError::Input`], [`MarketError::Limit`]; those of [`Arrivals::wait`].
    pub fn content(&self) -> Result<Content, MarketError> {
        let held = match &self.place {
            InputPlace::File(path) => return Content::of_file(path, &self.shown),
            InputPlace::Arriving(path, arrivals) => {
                arrivals.wait(path)?;
                return Content::of_file(path, &self.shown);
            }
            InputPlace::Held(held) => held.clone(),
            InputPlace::Member(archive, at, folder) => {
                // A clone shares the table of contents and has a position of its own.
                let mut archive = archive.clone();
                let member = archive.by_index(*at).map_err(|e| damaged(&self.shown, e))?;
                Held::keep(&self.shown, member, "decompress", folder.as_deref())?
            }
        };
        Content::of_held(held, &self.shown)
    }
}

/// The content of an input, which can be read from its start as often as needed.
#[derive(Clone)]
pub(crate) struct Content {
    place: Place,
    gzip: bool,
    /// Name of the input in messages.
    shown: String,
}

#[derive(Clone)]
enum Place {
    File(PathBuf),
    Held(Held),
}

impl Content {
    fn of_file(path: &Path, shown: &str) -> Result<Self, MarketError> {
        let mut file = File::open(path).map_err(MarketError::input("read", shown))?;
        if file.metadata().map_err(MarketError::input("read", shown))?.is_dir() {
            let expected = "the path of a CSV file".to_owned();
            return Err(MarketError::BadCsv { file: shown.to_owned(), why: "it is a directory".to_owned(), expected });
        }
        let mut start = Vec::with_capacity(GZIP_MAGIC.len());
        file.by_ref()
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut start)
            .map_err(MarketError::input("read", shown))?;
        Self { place: Place::File(path.to_path_buf()), gzip: start == GZIP_MAGIC, shown: shown.to_owned() }.in_utf8()
    }

    /// Bytes in memory.
    ///
    /// # Errors
    /// [`MarketError::Input`] for damaged gzip.
    pub fn of_bytes(bytes: Arc<[u8]>, shown: &str) -> Result<Self, MarketError> {
        Self::of_held(Held::Memory(bytes), shown)
    }

    fn of_held(held: Held, shown: &str) -> Result<Self, MarketError> {
        let gzip = held.starts_with(&GZIP_MAGIC);
        Self { place: Place::Held(held), gzip, shown: shown.to_owned() }.in_utf8()
    }

    /// Text with the byte order mark of UTF-16 is converted at once, and held.
    fn in_utf8(self) -> Result<Self, MarketError> {
        let mut start = Vec::new();
        let mark = self.reader()?.take(UTF16_MARKS[0].len() as u64).read_to_end(&mut start);
        // An error is reported by whoever reads the content.
        if mark.is_err() || !UTF16_MARKS.iter().any(|mark| start == *mark) {
            return Ok(self);
        }
        let bytes = utf8(self.whole()?);
        Ok(Self { place: Place::Held(Held::Memory(bytes.into())), gzip: false, shown: self.shown })
    }

    /// Its decompressed bytes from the start; [`Content::failed`] makes the error of a failed read.
    ///
    /// # Errors
    /// [`MarketError::Input`] where the file cannot be opened again.
    pub fn reader(&self) -> Result<Box<dyn Read + Send>, MarketError> {
        Ok(match (&self.place, self.gzip) {
            (Place::File(path), gzip) => {
                let file = File::open(path).map_err(MarketError::input("read", &self.shown))?;
                if gzip {
                    Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(COMPRESSED_BYTES, file)))
                } else {
                    Box::new(file)
                }
            }
            (Place::Held(held), true) => {
                Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(COMPRESSED_BYTES, held.reader())))
            }
            (Place::Held(held), false) => Box::new(held.reader()),
        })
    }

    /// Whether it is a file as it is on the disk.
    pub fn is_plain_file(&self) -> bool {
        matches!(self.place, Place::File(_)) && !self.gzip
    }

    /// The file as it is on the disk.
    ///
    /// # Errors
    /// [`MarketError::Input`] where it cannot be opened, or there is none.
    pub fn plain_file(&self) -> Result<File, MarketError> {
        let opened = match &self.place {
            Place::File(path) => File::open(path),
            Place::Held(_) => Err(io::ErrorKind::NotFound.into()),
        };
        opened.map_err(MarketError::input("read", &self.shown))
    }

    /// The error of a read that failed.
    pub fn failed(&self, error: io::Error) -> MarketError {
        MarketError::input(if self.gzip { "decompress" } else { "read" }, &self.shown)(error)
    }

    /// The same in this line, counted from 1, after so many bytes of text.
    pub fn failed_in(&self, error: io::Error, line: u64, bytes: u64) -> MarketError {
        let why = match error.kind() {
            _ if self.gzip && self.has_rest() => "other bytes follow its compressed data".to_owned(),
            io::ErrorKind::UnexpectedEof if self.gzip => "it is cut off".to_owned(),
            _ => error.to_string(),
        };
        self.failed(io::Error::new(error.kind(), format!("{why}, in line {line}, after {bytes} bytes of text")))
    }

    /// Whether the compressed data are whole, and something that is not compressed follows them. A read beyond their end fails as one of
    /// data that are cut off does.
    fn has_rest(&self) -> bool {
        let mut compressed: Box<dyn BufRead> = match &self.place {
            Place::File(path) => match File::open(path) {
                Ok(file) => Box::new(io::BufReader::with_capacity(COMPRESSED_BYTES, file)),
                Err(_) => return false,
            },
            Place::Held(held) => Box::new(io::BufReader::with_capacity(COMPRESSED_BYTES, held.reader())),
        };
        loop {
            let mut member = GzDecoder::new(compressed);
            if io::copy(&mut member, &mut io::sink()).is_err() {
                return false;
            }
            compressed = member.into_inner();
            match compressed.fill_buf() {
                Ok([]) => return false,
                Ok(rest) if rest.iter().zip(GZIP_MAGIC).any(|(byte, expected)| *byte != expected) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// The error that so many decompressed bytes are too many.
    ///
    /// # Errors
    /// [`MarketError::Limit`] beyond [`TEXT_FILE_BYTES_MAX`].
    pub fn check_length(&self, bytes: u64) -> Result<(), MarketError> {
        if bytes > TEXT_FILE_BYTES_MAX { Err(too_long(&self.shown, bytes, TEXT_FILE_BYTES_MAX)) } else { Ok(()) }
    }

    /// All its bytes, decompressed.
    ///
    /// # Errors
    /// [`MarketError::Input`], [`MarketError::Limit`].
    pub fn whole(&self) -> Result<Vec<u8>, MarketError> {
        read_limited(&self.shown, self.reader()?, if self.gzip { "decompress" } else { "read" })
    }

    /// Reads what is compressed to its end: that a file is damaged says more than what is wrong with its rows.
    ///
    /// # Errors
    /// [`MarketError::Input`].
    pub fn check_compressed(&self) -> Result<(), MarketError> {
        if !self.gzip {
            return Ok(());
        }
        let mut reader = self.reader()?;
        let (mut lines, mut all, mut buffer) = (1, 0, vec![0; COMPRESSED_BYTES]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    lines += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
                    all += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed_in(error, lines, all)),
            }
        }
    }
}

fn damaged(file: &str, error: zip::result::ZipError) -> MarketError {
    MarketError::Input { action: "unpack", file: file.to_owned(), source: io::Error::other(error) }
}

/// The inputs that these paths name, some of which messages call by other names: archives are replaced by their members, `-` is
/// standard input. What can be read only once, and is too much for memory, is kept in `folder`. Sorted by name, so that the order in which files are given does not matter. Files that are still to arrive are no archives.
///
/// # Errors
/// [`MarketError::Input`] for a path that cannot be opened, [`MarketError::BadCsv`] for an archive without files,
/// [`MarketError::Limit`].
pub(crate) fn expand(
    paths: &[PathBuf],
    names: &BTreeMap<PathBuf, String>,
    arrivals: Option<&Arc<dyn Arrivals>>,
    folder: Option<&Path>,
) -> Result<Vec<Input>, MarketError> {
    let folder: Option<Arc<Path>> = folder.map(Arc::from);
    let mut inputs = Vec::with_capacity(paths.len());
    for path in paths {
        if path == Path::new(STDIN) {
            let shown = "standard input".to_owned();
            hold(io::stdin().lock(), shown, STDIN.to_owned(), folder.as_ref(), &mut inputs)?;
            continue;
        }
        let shown = names.get(path).cloned().unwrap_or_else(|| path.display().to_string());
        let refused = |why: &str| {
            let expected = "the path of a file of bars".to_owned();
            MarketError::BadCsv { file: shown.clone(), why: why.to_owned(), expected }
        };
        let name = path.file_name().ok_or_else(|| refused("it does not name a file"))?.to_string_lossy().into_owned();
        if let Some(arrivals) = arrivals {
            add(Input { place: InputPlace::Arriving(path.clone(), Arc::clone(arrivals)), shown, name }, &mut inputs)?;
            continue;
        }
        let mut file = File::open(path).map_err(MarketError::input("read", &shown))?;
        let kind = file.metadata().map_err(MarketError::input("read", &shown))?;
        if kind.is_dir() {
            return Err(refused("it is a directory"));
        }
        let name = if DESCRIPTORS.iter().any(|folder| path.starts_with(folder)) { STDIN.to_owned() } else { name };
        if !kind.is_file() {
            hold(file, shown, name, folder.as_ref(), &mut inputs)?;
            continue;
        }
        let mut start = [0; ZIP_MAGIC.len()];
        // A shorter file is not an archive.
        if file.read_exact(&mut start).is_ok() && start == ZIP_MAGIC {
            let archive = Held::file(file).map_err(MarketError::input("read", &shown))?;
            members(&shown, &archive, folder.as_ref(), &mut inputs)?;
        } else {
            add(Input { place: InputPlace::File(path.clone()), shown, name }, &mut inputs)?;
        }
    }
    inputs.sort_by(|a, b| (&a.name, &a.shown).cmp(&(&b.name, &b.shown)));
    Ok(inputs)
}

/// Adds one more input, within the limit.
fn add(input: Input, inputs: &mut Vec<Input>) -> Result<(), MarketError> {
    inputs.push(input);
    if inputs.len() > IMPORT_FILES_MAX {
        let (found, limit) = (inputs.len() as u64, IMPORT_FILES_MAX as u64);
        return Err(MarketError::Limit { what: "files of one import".to_owned(), found, limit });
    }
    Ok(())
}

/// Reads to its end what cannot be opened a second time: standard input, a pipe.
fn hold(
    reader: impl Read,
    shown: String,
    name: String,
    folder: Option<&Arc<Path>>,
    inputs: &mut Vec<Input>,
) -> Result<(), MarketError> {
    let held = Held::keep(&shown, reader, "read", folder.map(AsRef::as_ref))?;
    match held.starts_with(&ZIP_MAGIC) {
        true => members(&shown, &held, folder, inputs),
        false => add(Input { place: InputPlace::Held(held), shown, name }, inputs),
    }
}

fn members(shown: &str, held: &Held, folder: Option<&Arc<Path>>, inputs: &mut Vec<Input>) -> Result<(), MarketError> {
    let archive = ZipArchive::new(held.reader()).map_err(|e| damaged(shown, e))?;
    let refused = |why: &str, expected: &str| {
        let (file, why, expected) = (shown.to_owned(), why.to_owned(), expected.to_owned());
        MarketError::BadCsv { file, why, expected }
    };
    if archive.index_for_name("xl/workbook.xml").is_some() {
        return Err(refused("it is an Excel workbook", "a sheet saved as CSV"));
    }
    let before = inputs.len();
    for at in 0..archive.len() {
        let Some(Ok(inside)) = archive.name_for_index(at) else { continue };
        let name = inside.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        if name.is_empty() || name.starts_with('.') || inside.starts_with("__MACOSX") {
            continue;
        }
        let shown = format!("{shown}/{inside}");
        add(Input { place: InputPlace::Member(archive.clone(), at, folder.cloned()), shown, name }, inputs)?;
    }
    if inputs.len() == before {
        return Err(refused("the archive contains no files", "an archive of files of bars"));
    }
    Ok(())
}

/// Text in which `%2F` is a slash.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = more.get(..2).filter(|code| first == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a file, decompressed.
pub(crate) fn read_file(path: &Path, file: &str) -> Result<Vec<u8>, MarketError> {
    Content::of_file(path, file)?.whole()
}

/// Converts text with the byte order mark of UTF-16 to UTF-8; other bytes are unchanged.
fn utf8(bytes: Vec<u8>) -> Vec<u8> {
    let unit: fn([u8; 2]) -> u16 = match bytes.get(..2) {
        Some(b"\xff\xfe") => u16::from_le_bytes,
        Some(b"\xfe\xff") => u16::from_be_bytes,
        _ => return bytes,
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use super::*;
    use crate::reading::value_of;

    #[test]
    fn a_folder_with_a_key_has_a_value() {
        let input = |shown: &str| Input {
            place: InputPlace::Held(Held::Memory(Arc::default())),
            shown: shown.to_owned(),
            name: String::new(),
        };
        let lake = input("s3://b/lake/Symbol=BRK%2FB/year=2024/part-0=x.parquet");
        let expected = [("year", "2024"), ("Symbol", "BRK/B")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(lake.partitions(), expected, "the nearest first, and not the file's own name");
        assert_eq!(value_of(&lake.partitions(), "symbol"), Some("BRK/B"));
        assert_eq!((value_of(&lake.partitions(), "part-0"), input("symbol=X").partitions()), (None, Vec::new()));
        assert_eq!(percent_decoded("100%, 5%2, %zz, %+f"), "100%, 5%2, %zz, %+f");
    }

    #[test]
    fn members_of_an_archive_on_standard_input_count_as_files() {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["A.csv", "B.csv"] {
            archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(b"date,close\n").unwrap();
        }
        let bytes = archive.finish().unwrap().into_inner();
        let place = InputPlace::Held(Held::Memory(Arc::default()));
        let held = Input { place, shown: String::new(), name: String::new() };
        let mut inputs = vec![held; IMPORT_FILES_MAX - 2];
        let hold = |inputs: &mut Vec<Input>| hold(bytes.as_slice(), "pipe".to_owned(), STDIN.to_owned(), None, inputs);
        assert!(hold(&mut inputs).is_ok());
        assert!(matches!(hold(&mut inputs), Err(MarketError::Limit { limit, .. }) if limit == IMPORT_FILES_MAX as u64));
    }
}
