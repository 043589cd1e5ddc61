//! Column chunks of a Parquet file from columns whose distinct values are known beforehand: times, symbols, statuses,
//! reasons, ranks, flags.
//!
//! The writer of the crate `parquet` looks up the value of each row in a dictionary that it makes, also where rows come
//! as indices into a dictionary: at every bar of a market that took most of the time. Here indices are encoded as they
//! are. Headers, statistics and the file are still written by the crate. Columns of any numbers are not written here.

use std::io::Write;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::hybrid::{Hybrid, bits_for};

/// Rows of one page.
const PAGE_ROWS: usize = 128 * 1024;

/// An encoded column chunk.
pub struct ColumnChunk {
    bytes: Bytes,
    close: ColumnCloseResult,
}

impl ColumnChunk {
    /// Appends it to a row group, as its next column.
    ///
    /// # Errors
    /// The writer's error, also if the column is not the next one of the group.
    pub fn append_to<W: Write + Send>(self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        group.append_column(&self.bytes, self.close)
    }
}

/// The values that a column's indices refer to.
#[derive(Debug, Clone)]
pub struct Dictionary {
    /// One after the other, as a page has them.
    page: Bytes,
    values: usize,
    /// Smallest and largest; `None` for texts.
    statistics: Option<Statistics>,
}

impl Dictionary {
    /// Of texts, without statistics.
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut page, mut values) = (Vec::new(), 0);
        for text in texts {
            // The format limits a page to less than 2 GiB, which the page's header reports.
            page.extend_from_slice(&(text.len() as u32).to_le_bytes());
            page.extend_from_slice(text.as_bytes());
            values += 1;
        }
        Self { page: page.into(), values, statistics: None }
    }

    /// Of whole numbers of 64 bits.
    pub fn longs(numbers: &[i64]) -> Self {
        let page: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let (min, max) = (numbers.iter().min().copied(), numbers.iter().max().copied());
        let statistics = ValueStatistics::new(min, max, None, Some(0), false).with_backwards_compatible_min_max(true);
        Self { page: page.into(), values: numbers.len(), statistics: Some(Statistics::Int64(statistics)) }
    }

    /// Of numbers; without statistics if one of them is NaN.
    pub fn doubles(numbers: &[f64]) -> Self {
        let page: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let min = numbers.iter().copied().min_by(f64::total_cmp);
        let max = numbers.iter().copied().max_by(f64::total_cmp);
        let statistics = ValueStatistics::new(min, max, None, Some(0), false).with_nan_count(Some(0));
        let known = !numbers.iter().any(|number| number.is_nan());
        Self { page: page.into(), values: numbers.len(), statistics: known.then_some(Statistics::Double(statistics)) }
    }

    /// Bits of an index.
    fn width(&self) -> u32 {
        bits_for(self.values.saturating_sub(1))
    }

    /// The first bytes of a page: how wide its indices are.
    fn start(&self, mut bytes: Vec<u8>) -> Hybrid {
        bytes.push(self.width() as u8);
        Hybrid::after(bytes, self.width())
    }
}

/// A column whose rows refer to a dictionary; `T` holds every index.
///
/// # Errors
/// The writer's error.
pub fn indexed<T>(column: &ColumnDescPtr, dictionary: &Dictionary, rows: &[T]) -> Result<ColumnChunk>
where
    T: Copy + PartialEq + Into<u32>,
{
    let mut pages = Pages::with(dictionary)?;
    for rows in rows.chunks(PAGE_ROWS) {
        let mut page = dictionary.start(Vec::new());
        page.values(rows);
        pages.data(page.into_bytes(), rows.len(), Encoding::RLE_DICTIONARY)?;
    }
    pages.close(column, dictionary.statistics.clone())
}

/// A column of the values of a dictionary in their order, each for as many rows as `counts` says.
///
/// # Errors
/// The writer's error.
pub fn repeated(column: &ColumnDescPtr, dictionary: &Dictionary, counts: &[usize]) -> Result<ColumnChunk> {
    let mut pages = Pages::with(dictionary)?;
    let (mut page, mut rows) = (dictionary.start(Vec::new()), 0);
    for (index, &count) in (0u32..).zip(counts) {
        let mut left = count;
        while left > 0 {
            let taken = left.min(PAGE_ROWS - rows);
            page.run(index, taken);
            left -= taken;
            rows += taken;
            if rows == PAGE_ROWS {
                let full = std::mem::replace(&mut page, dictionary.start(Vec::new()));
                pages.data(full.into_bytes(), rows, Encoding::RLE_DICTIONARY)?;
                rows = 0;
            }
        }
    }
    if rows > 0 {
        pages.data(page.into_bytes(), rows, Encoding::RLE_DICTIONARY)?;
    }
    pages.close(column, dictionary.statistics.clone())
}

/// A nullable column of ranks, of 32 bits without sign; 0 is null.
///
/// # Errors
/// The writer's error.
pub fn ranks(column: &ColumnDescPtr, ranks: &[u32]) -> Result<ColumnChunk> {
    let highest = ranks.iter().max().copied().unwrap_or(0);
    let numbers: Vec<u8> = (1..=highest).flat_map(u32::to_le_bytes).collect();
    let dictionary = Dictionary { page: numbers.into(), values: highest as usize, statistics: None };
    let mut pages = Pages::with(&dictionary)?;
    let (mut nulls, mut lowest) = (0u64, highest);
    let (mut defined, mut indices) = (Vec::new(), Vec::new());
    for rows in ranks.chunks(PAGE_ROWS) {
        defined.clear();
        defined.extend(rows.iter().map(|rank| u8::from(*rank > 0)));
        indices.clear();
        indices.extend(rows.iter().filter(|rank| **rank > 0).map(|rank| *rank - 1));
        nulls += (rows.len() - indices.len()) as u64;
        lowest = indices.iter().min().map_or(lowest, |index| lowest.min(*index + 1));
        // Levels are preceded by their number of bytes.
        let mut levels = Hybrid::after(vec![0; 4], 1);
        levels.values(&defined);
        let mut bytes = levels.into_bytes();
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let mut page = dictionary.start(bytes);
        page.values(&indices);
        pages.data(page.into_bytes(), rows.len(), Encoding::RLE_DICTIONARY)?;
    }
    // The bits of numbers without sign, as the format has them.
    let bound = |rank: u32| (highest > 0).then_some(rank.cast_signed());
    let statistics = ValueStatistics::new(bound(lowest), bound(highest), None, Some(nulls), false);
    pages.close(column, Some(Statistics::Int32(statistics)))
}

/// A column of flags.
///
/// # Errors
/// The writer's error.
pub fn flags(column: &ColumnDescPtr, flags: &[bool]) -> Result<ColumnChunk> {
    let mut pages = Pages::new();
    for rows in flags.chunks(PAGE_ROWS) {
        let (whole, rest) = rows.as_chunks::<8>();
        let mut bytes: Vec<u8> = Vec::with_capacity(whole.len() + 1);
        bytes.extend(whole.iter().map(|flags| packed(*flags)));
        if !rest.is_empty() {
            bytes.push(packed(std::array::from_fn(|i| rest.get(i).copied().unwrap_or(false))));
        }
        pages.data(bytes, rows.len(), Encoding::PLAIN)?;
    }
    // Without a branch in the loop.
    let min = flags.iter().fold(true, |all, flag| all & flag);
    let max = flags.iter().fold(false, |any, flag| any | flag);
    let bound = |flag: bool| (!flags.is_empty()).then_some(flag);
    let statistics = ValueStatistics::new(bound(min), bound(max), None, Some(0), false);
    pages.close(column, Some(Statistics::Boolean(statistics)))
}

/// Eight flags as the bits of a byte, the first one lowest.
fn packed(flags: [bool; 8]) -> u8 {
    /// Moves the lowest bit of byte i to bit 56 + i.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let [a, b, c, d, e, f, g, h] = flags;
    let bytes =
        [u8::from(a), u8::from(b), u8::from(c), u8::from(d), u8::from(e), u8::from(f), u8::from(g), u8::from(h)];
    let bytes = u64::from_le_bytes(bytes);
    (bytes.wrapping_mul(GATHER) >> 56) as u8
}

/// Indices into `values` as indices into those that occur, and which ones occur; in the order of their first row.
pub fn occurring(indices: &[u32], values: usize) -> (Vec<u32>, Vec<u32>) {
    let mut new = vec![u32::MAX; values];
    let mut occurring = Vec::new();
    let mut rows = Vec::with_capacity(indices.len());
    for old in indices {
        let index = &mut new[*old as usize];
        if *index == u32::MAX {
            *index = occurring.len() as u32;
            occurring.push(*old);
        }
        rows.push(*index);
    }
    (rows, occurring)
}

/// The pages of a chunk.
struct Pages {
    sink: TrackedWrite<Vec<u8>>,
    rows: usize,
    uncompressed: usize,
    /// Of the data pages.
    encoding: Encoding,
    data_pages: i32,
    /// Where the data pages begin, if a dictionary is before them.
    after_dictionary: Option<usize>,
}

impl Pages {
    fn new() -> Self {
        Self {
            sink: TrackedWrite::new(Vec::new()),
            rows: 0,
            uncompressed: 0,
            encoding: Encoding::PLAIN,
            data_pages: 0,
            after_dictionary: None,
        }
    }

    /// Begins with the page of a dictionary.
    fn with(dictionary: &Dictionary) -> Result<Self> {
        let mut pages = Self::new();
        pages.write(Page::DictionaryPage {
            buf: dictionary.page.clone(),
            num_values: dictionary.values as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        })?;
        pages.after_dictionary = Some(pages.sink.bytes_written());
        Ok(pages)
    }

    fn data(&mut self, bytes: Vec<u8>, rows: usize, encoding: Encoding) -> Result<()> {
        self.rows += rows;
        self.encoding = encoding;
        self.data_pages += 1;
        self.write(Page::DataPage {
            buf: bytes.into(),
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }

    fn write(&mut self, page: Page) -> Result<()> {
        let bytes = page.buffer().len();
        let written = SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(page, bytes))?;
        self.uncompressed += written.uncompressed_size;
        Ok(())
    }

    fn close(self, column: &ColumnDescPtr, statistics: Option<Statistics>) -> Result<ColumnChunk> {
        let bytes = self.sink.bytes_written();
        let of_data =
            PageEncodingStats { page_type: PageType::DATA_PAGE, encoding: self.encoding, count: self.data_pages };
        let of_dictionary =
            PageEncodingStats { page_type: PageType::DICTIONARY_PAGE, encoding: Encoding::PLAIN, count: 1 };
        let first = self.after_dictionary.map(|_| of_dictionary);
        let mut metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Compression::UNCOMPRESSED)
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, self.encoding])
            .set_page_encoding_stats(first.into_iter().chain([of_data]).collect())
            .set_total_compressed_size(bytes as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(self.after_dictionary.map(|_| 0))
            .set_data_page_offset(self.after_dictionary.unwrap_or(0) as i64);
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes as u64,
            rows_written: self.rows as u64,
            bloom_filter: None,
            metadata: metadata.build()?,
            column_index: None,
            offset_index: None,
        };
        Ok(ColumnChunk { bytes: self.sink.into_inner()?.into(), close })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
    use arrow_array::{Array as _, RecordBatch};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::metadata::RowGroupMetaData;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// The rows of a file with one row group, and what its footer says of them.
    fn read_back(
        schema: &str,
        chunks: impl FnOnce(&[ColumnDescPtr]) -> Vec<Result<ColumnChunk>>,
    ) -> (RecordBatch, RowGroupMetaData) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        let columns = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group().unwrap();
        for chunk in chunks(&columns) {
            chunk.unwrap().append_to(&mut group).unwrap();
        }
        group.close().unwrap();
        let bytes = Bytes::from(file.into_inner().unwrap());
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        let metadata = builder.metadata().row_group(0).clone();
        let rows = metadata.num_rows() as usize;
        let mut batches = builder.with_batch_size(rows).build().unwrap();
        let batch = batches.next().unwrap().unwrap();
        assert_eq!(batch.num_rows(), rows);
        (batch, metadata)
    }

    const SCHEMA: &str = "message rows { required int64 time; optional int32 place (INTEGER(32,false)); \
                          required binary text (STRING); required boolean flag; required double number; }";

    /// Rows in which every column has stretches and changes.
    fn check(rows: usize) {
        let times = [30i64, 10, 20];
        let counts = [rows / 3, rows / 2, rows - rows / 3 - rows / 2];
        let places: Vec<u32> = (0..rows as u32).map(|i| if i % 1000 < 700 { 0 } else { i % 300 + 2 }).collect();
        let texts = ["", "a", "ß", "longer than the others"];
        let indices: Vec<u32> = (0..rows as u32).map(|i| if i % 500 < 250 { 1 } else { i / 7 % 4 }).collect();
        let marks: Vec<bool> = (0..rows).map(|i| i % 90 > 80 || i % 7 == 3).collect();
        let numbers = [-0.0, 0.0, 2.5];
        let points: Vec<u8> = (0..rows).map(|i| (i / 3 % 3) as u8).collect();
        let (read, group) = read_back(SCHEMA, |columns| {
            vec![
                repeated(&columns[0], &Dictionary::longs(&times), &counts),
                ranks(&columns[1], &places),
                indexed(&columns[2], &Dictionary::texts(texts), &indices),
                flags(&columns[3], &marks),
                indexed(&columns[4], &Dictionary::doubles(&numbers), &points),
            ]
        });
        let time: Vec<i64> =
            times.iter().zip(counts).flat_map(|(time, count)| std::iter::repeat_n(*time, count)).collect();
        assert_eq!(read.column(0).as_primitive::<Int64Type>().values(), &time[..]);
        let place = read.column(1).as_primitive::<UInt32Type>();
        let place: Vec<u32> = (0..rows).map(|i| if place.is_null(i) { 0 } else { place.value(i) }).collect();
        assert_eq!(place, places);
        let text = read.column(2).as_string::<i32>();
        assert!((0..rows).all(|i| text.value(i) == texts[indices[i] as usize]));
        let mark = read.column(3).as_boolean();
        assert!((0..rows).all(|i| mark.value(i) == marks[i]));
        let number = read.column(4).as_primitive::<Float64Type>();
        assert!((0..rows).all(|i| number.value(i).to_bits() == numbers[points[i] as usize].to_bits()));

        assert_eq!(group.num_rows(), rows as i64);
        let statistics = |column: usize| group.column(column).statistics().unwrap();
        let bounds =
            |column| (statistics(column).min_bytes_opt().unwrap(), statistics(column).max_bytes_opt().unwrap());
        assert_eq!(bounds(0), (&10i64.to_le_bytes()[..], &30i64.to_le_bytes()[..]));
        let placed = || places.iter().filter(|place| **place > 0);
        assert_eq!(statistics(1).null_count_opt(), Some((rows - placed().count()) as u64));
        let (least, most) = (placed().min().unwrap().to_le_bytes(), placed().max().unwrap().to_le_bytes());
        assert_eq!(bounds(1), (&least[..], &most[..]));
        assert!(group.column(2).statistics().is_none(), "texts have none");
        assert_eq!(bounds(3), (&[0][..], &[1][..]));
        assert_eq!(bounds(4), (&(-0.0f64).to_le_bytes()[..], &2.5f64.to_le_bytes()[..]));
    }

    #[test]
    fn columns_of_one_page_and_of_several_are_read_back_with_their_bounds() {
        for rows in [1000, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS + 13] {
            check(rows);
        }
    }

    #[test]
    fn a_column_without_a_rank_or_with_one_value_is_read_back() {
        let (read, group) = read_back(SCHEMA, |columns| {
            vec![
                repeated(&columns[0], &Dictionary::longs(&[7]), &[20]),
                ranks(&columns[1], &[0; 20]),
                indexed(&columns[2], &Dictionary::texts(["x"]), &[0u8; 20]),
                flags(&columns[3], &[true; 20]),
                indexed(&columns[4], &Dictionary::doubles(&[f64::NAN]), &[0u8; 20]),
            ]
        });
        assert_eq!((read.num_rows(), read.column(1).null_count()), (20, 20));
        assert!((0..20).all(|i| read.column(0).as_primitive::<Int64Type>().value(i) == 7));
        assert!((0..20).all(|i| read.column(2).as_string::<i32>().value(i) == "x"));
        assert!((0..20).all(|i| read.column(3).as_boolean().value(i)));
        assert!((0..20).all(|i| read.column(4).as_primitive::<Float64Type>().value(i).is_nan()));
        assert!(group.column(1).statistics().unwrap().min_bytes_opt().is_none());
        assert!(group.column(4).statistics().is_none(), "NaN has no place in an order");
    }

    #[test]
    fn indices_are_renumbered_in_the_order_of_their_first_row() {
        assert_eq!(occurring(&[4, 4, 1, 4, 0], 6), (vec![0, 0, 1, 0, 2], vec![4, 1, 0]));
        assert_eq!(occurring(&[], 3), (vec![], vec![]));
    }
}
