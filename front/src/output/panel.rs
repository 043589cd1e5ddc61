//! The answers at many times as one Parquet or Arrow file, with the columns of one answer.
//!
//! The rows of a chunk of times are cut into blocks, which are put in order and encoded on all threads and written one
//! after the other. In Parquet, rows refer to times, settings, symbols, statuses and reasons by their index
//! ([`column_chunk`]); the crate `parquet` encodes the values.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::Schema;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowRowGroupWriterFactory, ArrowWriter, ArrowWriterOptions, compute_leaves,
};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnDescPtr;
use rayon::prelude::*;
use trawl_coordinator::{PanelChunk, PanelRows};
use trawl_plan::{ColumnKind, Setting};
use trawl_wire::{Answer, Status};

use super::column_chunk::{self, ColumnChunk, Dictionary};
use super::columnar::{metadata, schema, select_array};
use super::{About, Kind, select_kind, setting_kind, setting_names, whole};

/// Rows of a block: a row group of Parquet, a record batch of Arrow. A block has the rows of at least one time.
const BLOCK_ROWS: usize = 128 * 1024;
/// Blocks that are encoded before they are written, for each thread.
const BLOCKS_PER_THREAD: usize = 2;

/// A file being written.
pub struct PanelFile<W: Write + Send> {
    encoder: Encoder,
    writer: Writer<W>,
}

/// What all threads encode with.
struct Encoder {
    schema: Arc<Schema>,
    /// `[variable][point]`: values of the sweep's variables.
    settings: Vec<Column>,
    /// Kinds of the select columns.
    select: Vec<ColumnKind>,
    /// Of a Parquet file: its columns, and writers for those of values.
    parquet: Option<(Vec<ColumnDescPtr>, ArrowRowGroupWriterFactory)>,
    /// Row groups that are written.
    written: usize,
}

/// Values of one of the sweep's variables, by point.
enum Column {
    Words(Vec<String>),
    Wholes(Vec<i64>),
    Numbers(Vec<f64>),
}

enum Writer<W: Write + Send> {
    Arrow(arrow_ipc::writer::FileWriter<W>),
    Parquet(SerializedFileWriter<W>),
}

/// A block, encoded.
enum Block {
    Batch(RecordBatch),
    Columns(Vec<Encoded>),
}

/// A column of a row group.
enum Encoded {
    Indices(ColumnChunk),
    Values(ArrowColumnChunk),
}

impl Encoded {
    fn append_to<W: Write + Send>(self, group: &mut SerializedRowGroupWriter<'_, W>) -> parquet::errors::Result<()> {
        match self {
            Self::Indices(chunk) => chunk.append_to(group),
            Self::Values(chunk) => chunk.append_to_row_group(group),
        }
    }
}

/// What is counted while rows are written.
#[derive(Debug, Default, Clone, Copy)]
pub struct Written {
    /// Rows of symbols at times.
    pub rows: u64,
    /// Those that matched.
    pub matched: u64,
}

impl<W: Write + Send> PanelFile<W> {
    /// Starts a file for answers with the columns of `answer`; the metadata contain its identity.
    ///
    /// # Errors
    /// The writer's error.
    pub fn begin(parquet: bool, answer: &Answer, about: &About<'_>, writer: W) -> anyhow::Result<Self> {
        let schema = schema(answer, about);
        let settings = (0..setting_names(answer).len()).map(|variable| column(answer, variable)).collect();
        let select = (0..answer.select.len()).map(|at| select_kind(answer, at).clone()).collect();
        if !parquet {
            let writer = Writer::Arrow(arrow_ipc::writer::FileWriter::try_new(writer, &schema)?);
            return Ok(Self { encoder: Encoder { schema, settings, select, parquet: None, written: 0 }, writer });
        }
        let pairs = metadata(about).into_iter().map(|(key, value)| KeyValue { key, value: Some(value) }).collect();
        let mut properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let (file, groups) =
            ArrowWriter::try_new_with_options(writer, Arc::clone(&schema), options)?.into_serialized_writer()?;
        let columns = file.schema_descr().columns().to_vec();
        let encoder = Encoder { schema, settings, select, parquet: Some((columns, groups)), written: 0 };
        Ok(Self { encoder, writer: Writer::Parquet(file) })
    }

    /// Appends the answers of a chunk's times.
    ///
    /// # Errors
    /// The writer's error.
    pub fn push(&mut self, chunk: &PanelChunk) -> anyhow::Result<Written> {
        let times = (BLOCK_ROWS / chunk.rows_of_a_time().max(1)).max(1);
        let blocks: Vec<Range<usize>> =
            (0..chunk.times.len()).step_by(times).map(|from| from..chunk.times.len().min(from + times)).collect();
        let texts = Texts::of(chunk);
        let mut written = Written::default();
        for blocks in blocks.chunks(rayon::current_num_threads() * BLOCKS_PER_THREAD) {
            let encode = |(at, times): (usize, &Range<usize>)| self.encoder.encode(chunk, times.clone(), &texts, at);
            let encoded = blocks.par_iter().enumerate().map(encode).collect::<anyhow::Result<Vec<_>>>()?;
            for (block, counted) in encoded {
                written.rows += counted.rows;
                written.matched += counted.matched;
                self.writer.write(block)?;
                self.encoder.written += 1;
            }
        }
        Ok(written)
    }

    /// Finishes the file and returns the writer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(self) -> anyhow::Result<W> {
        Ok(match self.writer {
            Writer::Arrow(mut file) => {
                file.finish()?;
                file.into_inner()?
            }
            Writer::Parquet(file) => file.into_inner()?,
        })
    }
}

impl Encoder {
    /// The rows of some times as a block; `ahead` blocks are written before it.
    fn encode(
        &self,
        chunk: &PanelChunk,
        times: Range<usize>,
        texts: &Texts,
        ahead: usize,
    ) -> anyhow::Result<(Block, Written)> {
        let rows = chunk.rows(times);
        let matched = rows.status.iter().filter(|status| **status == Status::Matched).count() as u64;
        let counted = Written { rows: rows.symbol.len() as u64, matched };
        let block = match &self.parquet {
            Some((columns, groups)) => {
                Block::Columns(self.encoded(&rows, chunk, texts, (columns, groups), self.written + ahead)?)
            }
            None => Block::Batch(RecordBatch::try_new(Arc::clone(&self.schema), self.arrays(rows, chunk))?),
        };
        Ok((block, counted))
    }

    /// Rows as the columns of row group number `group`.
    fn encoded(
        &self,
        rows: &PanelRows,
        chunk: &PanelChunk,
        texts: &Texts,
        (columns, groups): (&[ColumnDescPtr], &ArrowRowGroupWriterFactory),
        group: usize,
    ) -> anyhow::Result<Vec<Encoded>> {
        let mut encoded = Vec::with_capacity(columns.len());
        let mut next = columns.iter();
        let mut push = |chunk: &dyn Fn(&ColumnDescPtr) -> parquet::errors::Result<ColumnChunk>| -> anyhow::Result<()> {
            let column = next.next().context("the file has fewer columns than its rows")?;
            encoded.push(Encoded::Indices(chunk(column)?));
            Ok(())
        };
        let times: Vec<i64> = rows.times.iter().map(|(time, _)| *time).collect();
        let before = std::iter::once(0).chain(rows.times.iter().map(|(_, end)| *end));
        let counts: Vec<usize> = rows.times.iter().zip(before).map(|((_, end), before)| end - before).collect();
        push(&|column| column_chunk::repeated(column, &Dictionary::longs(&times), &counts))?;
        for setting in &self.settings {
            let (points, used) = column_chunk::occurring(&rows.point, setting.points());
            push(&|column| column_chunk::indexed(column, &setting.dictionary(&used), &points))?;
        }
        push(&|column| column_chunk::ranks(column, &rows.place))?;
        push(&|column| column_chunk::indexed(column, &texts.symbols, &rows.symbol))?;
        let statuses: Vec<u8> = rows.status.iter().map(|status| *status as u8).collect();
        push(&|column| column_chunk::indexed(column, &texts.statuses, &statuses))?;
        push(&|column| column_chunk::flags(column, &rows.edge))?;
        push(&|column| column_chunk::flags(column, &rows.provisional))?;
        let (reasons, used) = column_chunk::occurring(&rows.reason, chunk.reasons.len());
        let used = Dictionary::texts(used.iter().map(|reason| chunk.reasons[*reason as usize].as_str()));
        push(&|column| column_chunk::indexed(column, &used, &reasons))?;
        let first = encoded.len();
        if rows.values.is_empty() {
            return Ok(encoded);
        }
        let writers = groups.create_column_writers(group)?.into_iter().skip(first);
        let columns = rows.values.iter().zip(&self.select).zip(&self.schema.fields()[first..]);
        for (mut writer, ((values, kind), field)) in writers.zip(columns) {
            for leaf in compute_leaves(field, &nullable(values, kind, rows))? {
                writer.write(&leaf)?;
            }
            encoded.push(Encoded::Values(writer.close()?));
        }
        Ok(encoded)
    }
}

impl<W: Write + Send> Writer<W> {
    fn write(&mut self, block: Block) -> anyhow::Result<()> {
        match (self, block) {
            (Self::Arrow(file), Block::Batch(batch)) => file.write(&batch)?,
            (Self::Parquet(file), Block::Columns(columns)) => {
                let mut group = file.next_row_group()?;
                for column in columns {
                    column.append_to(&mut group)?;
                }
                group.close()?;
            }
            _ => anyhow::bail!("a block of another format"),
        }
        Ok(())
    }
}

fn column(answer: &Answer, variable: usize) -> Column {
    let settings = answer.points.iter().map(|point| point.get(variable).map(|(_, value)| value));
    let number = |value| match value {
        Some(&Setting::Number(value)) => value,
        _ => f64::NAN,
    };
    match setting_kind(answer, variable) {
        Kind::Text => {
            Column::Words(settings.map(|value| value.map_or_else(String::new, ToString::to_string)).collect())
        }
        Kind::Whole => Column::Wholes(settings.map(|value| whole(number(value)).unwrap_or(0)).collect()),
        Kind::Number => Column::Numbers(settings.map(number).collect()),
    }
}

impl Column {
    /// Number of points.
    fn points(&self) -> usize {
        match self {
            Self::Words(words) => words.len(),
            Self::Wholes(numbers) => numbers.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    /// The values at some points.
    fn dictionary(&self, points: &[u32]) -> Dictionary {
        match self {
            Self::Words(words) => Dictionary::texts(points.iter().map(|point| words[*point as usize].as_str())),
            Self::Wholes(numbers) => {
                Dictionary::longs(&points.iter().map(|point| numbers[*point as usize]).collect::<Vec<_>>())
            }
            Self::Numbers(numbers) => {
                Dictionary::doubles(&points.iter().map(|point| numbers[*point as usize]).collect::<Vec<_>>())
            }
        }
    }
}

/// The texts that the rows of all blocks of a chunk refer to.
struct Texts {
    symbols: Dictionary,
    statuses: Dictionary,
}

impl Texts {
    fn of(chunk: &PanelChunk) -> Self {
        Self {
            symbols: Dictionary::texts(chunk.symbols.iter().map(String::as_str)),
            statuses: Dictionary::texts(Status::ALL.iter().map(|status| status.name())),
        }
    }
}

/// The values of the rows that have some as a column of all rows, in which NaN and the other rows are null.
fn nullable(values: &[f64], kind: &ColumnKind, rows: &PanelRows) -> ArrayRef {
    let mut column = vec![0.0; rows.symbol.len()];
    let mut known = BooleanBufferBuilder::new(column.len());
    let mut values = values.iter();
    for valued in &rows.valued {
        known.append_n(valued.start - known.len(), false);
        for (cell, value) in column[valued.clone()].iter_mut().zip(&mut values) {
            *cell = *value;
            known.append(!value.is_nan());
        }
    }
    known.append_n(column.len() - known.len(), false);
    let known = Some(NullBuffer::new(known.finish()));
    match kind {
        ColumnKind::Condition => Arc::new(BooleanArray::new(column.iter().map(|value| *value == 1.0).collect(), known)),
        ColumnKind::Number => Arc::new(Float64Array::new(column.into(), known)),
        ColumnKind::Date | ColumnKind::Text(_) => {
            let missing = |at| known.as_ref().is_some_and(|known| known.is_null(at));
            let values = column.iter().enumerate();
            select_array(kind, values.map(|(at, value)| if missing(at) { f64::NAN } else { *value }))
        }
    }
}

impl Encoder {
    /// Rows as the columns of a record batch.
    fn arrays(&self, rows: PanelRows, chunk: &PanelChunk) -> Vec<ArrayRef> {
        let mut times = Vec::with_capacity(rows.symbol.len());
        for (time, end) in &rows.times {
            times.resize(*end, *time);
        }
        let mut arrays = vec![Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")) as ArrayRef];
        let points = || rows.point.iter().map(|point| *point as usize);
        arrays.extend(self.settings.iter().map(|column| match column {
            Column::Words(words) => {
                Arc::new(StringArray::from_iter_values(points().map(|point| &words[point]))) as ArrayRef
            }
            Column::Wholes(numbers) => Arc::new(Int64Array::from_iter_values(points().map(|point| numbers[point]))),
            Column::Numbers(numbers) => Arc::new(Float64Array::from_iter_values(points().map(|point| numbers[point]))),
        }));
        let columns = rows.values.iter().zip(&self.select);
        let values: Vec<ArrayRef> = columns.map(|(values, kind)| nullable(values, kind, &rows)).collect();
        let placed = NullBuffer::from_iter(rows.place.iter().map(|place| *place > 0));
        arrays.push(Arc::new(UInt32Array::new(rows.place.into(), Some(placed))));
        let symbols = rows.symbol.iter().map(|symbol| &chunk.symbols[*symbol as usize]);
        arrays.push(Arc::new(StringArray::from_iter_values(symbols)));
        arrays.push(Arc::new(StringArray::from_iter_values(rows.status.iter().map(|status| status.name()))));
        arrays.push(Arc::new(BooleanArray::from(rows.edge)));
        arrays.push(Arc::new(BooleanArray::from(rows.provisional)));
        let reasons = rows.reason.iter().map(|reason| &chunk.reasons[*reason as usize]);
        arrays.push(Arc::new(StringArray::from_iter_values(reasons)));
        arrays.extend(values);
        arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};
    use arrow_array::{Array as _, RecordBatchReader};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use trawl_coordinator::local::LocalOptions;
    use trawl_coordinator::{CHUNK_BYTES_MAX, PreparedScan, all_bars_by_column, answer_at, answer_digest, prepare};
    use trawl_kernels::NoCancel;
    use trawl_market::Store;
    use trawl_plan::ScanDocument;

    fn scan(document: &str) -> PreparedScan {
        let document = ScanDocument::from_toml(document).unwrap();
        prepare(&Store::new("/nowhere".into()), &document, None).unwrap()
    }

    /// The files of both formats, and the answers in chunks of a given size.
    fn written(prepared: &PreparedScan, chunk_bytes: u64) -> (Vec<u8>, Vec<u8>, Vec<(i64, Answer)>) {
        let mut answers = Vec::new();
        let mut files: Vec<PanelFile<Vec<u8>>> = Vec::new();
        let options = LocalOptions { threads: 3, ..LocalOptions::default() };
        all_bars_by_column(prepared, options, None, chunk_bytes, &NoCancel, |chunk| {
            if files.is_empty() {
                let first = answer_at(prepared, chunk, 0);
                let begin = |parquet| PanelFile::begin(parquet, &first, &About::new(&first, None), Vec::new()).unwrap();
                files = vec![begin(true), begin(false)];
            }
            let mut rows = Written::default();
            for file in &mut files {
                rows = file.push(chunk).unwrap();
            }
            let of_chunk: Vec<_> =
                (0..chunk.times.len()).map(|time| (chunk.times[time], answer_at(prepared, chunk, time))).collect();
            assert_eq!(rows.rows, of_chunk.iter().map(|(_, answer)| answer.rows.len() as u64).sum::<u64>());
            answers.extend(of_chunk);
            Ok(())
        })
        .unwrap();
        let arrow = files.pop().unwrap().finish().unwrap();
        (files.pop().unwrap().finish().unwrap(), arrow, answers)
    }

    /// Every cell of a file against the answers, in their order.
    fn assert_same(batches: impl Iterator<Item = RecordBatch>, answers: &[(i64, Answer)]) {
        let settings = setting_names(&answers[0].1).len();
        let mut rows = answers.iter().flat_map(|(time, answer)| answer.rows.iter().map(move |row| (time, answer, row)));
        for batch in batches {
            let column = |at: usize| batch.column(at);
            for i in 0..batch.num_rows() {
                let (time, answer, row) = rows.next().unwrap();
                assert_eq!(column(0).as_primitive::<TimestampMicrosecondType>().value(i), *time);
                for (at, (_, setting)) in super::super::settings_of(answer, row).iter().enumerate() {
                    match setting {
                        Setting::Number(value) if setting_kind(answer, at) == Kind::Whole => {
                            assert_eq!(column(1 + at).as_primitive::<Int64Type>().value(i) as f64, *value);
                        }
                        Setting::Number(value) => {
                            assert_eq!(column(1 + at).as_primitive::<Float64Type>().value(i), *value);
                        }
                        Setting::Text(word) => assert_eq!(column(1 + at).as_string::<i32>().value(i), word),
                    }
                }
                let fixed = 1 + settings;
                let place = column(fixed).as_primitive::<UInt32Type>();
                assert_eq!(place.is_valid(i).then(|| place.value(i)), row.place);
                assert_eq!(column(fixed + 1).as_string::<i32>().value(i), row.row.symbol);
                assert_eq!(column(fixed + 2).as_string::<i32>().value(i), row.row.status.name());
                assert_eq!(column(fixed + 3).as_boolean().value(i), row.row.edge);
                assert_eq!(column(fixed + 4).as_boolean().value(i), row.row.provisional);
                assert_eq!(column(fixed + 5).as_string::<i32>().value(i), row.row.reason);
                for at in 0..answer.select.len() {
                    let wrote = row.row.values.get(at).copied().filter(|value| !value.is_nan());
                    let values = column(fixed + 6 + at);
                    let kind = select_kind(answer, at);
                    if let ColumnKind::Text(_) = kind {
                        let read = values.as_string::<i32>();
                        assert_eq!(read.is_valid(i).then(|| read.value(i)), wrote.and_then(|wrote| kind.text(wrote)));
                        continue;
                    }
                    if *kind == ColumnKind::Condition {
                        let read = values.as_boolean();
                        assert_eq!(read.is_valid(i).then(|| f64::from(read.value(i))), wrote);
                        continue;
                    }
                    let values = values.as_primitive::<Float64Type>();
                    assert_eq!(values.is_valid(i).then(|| values.value(i).to_bits()), wrote.map(f64::to_bits));
                }
            }
        }
        assert!(rows.next().is_none());
    }

    #[test]
    fn a_panel_is_read_back_as_the_answers_of_all_times_in_both_formats() {
        for document in [
            "dataset = 'demo'\nuniverse = 'close > 10'\nwhere = 'sma(close, 5) > sma(close, 20)'\n\
             rank = 'roc(close, 10) desc'\nlimit = 3\nselect = ['close', 'roc(close, 10) as r', 'close > open as up', 'sector']",
            "dataset = 'demo'\nwhere = \"xs_rank(roc(close, n)) <= 3 and close > ref('SPY', close)\"\n[sweep]\nn = [5, 21]",
            "dataset = 'us5'\nwhere = 'close > ma(close, 50, matype=kind)'\n[sweep]\nkind = ['sma', 'ema']",
            "dataset = 'us5'\nwhere = 'close > sma(close, n)'\nselect = ['close']\n\
             best = { by = 'roc(close, n)', keep = 2 }\n[sweep]\nn = [20, 60, 120]",
            "dataset = 'us5'\nwhere = 'close > f * sma(close, 20)'\n[sweep]\nf = [1, 1.05]",
        ] {
            let prepared = scan(document);
            let (parquet, arrow, answers) = written(&prepared, CHUNK_BYTES_MAX);
            let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(parquet.clone())).unwrap();
            let reader = builder.build().unwrap();
            let schema = reader.schema();
            assert_same(reader.map(Result::unwrap), &answers);
            let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(arrow), None).unwrap();
            assert_eq!(reader.schema().fields(), schema.fields(), "one schema, in which texts are texts");
            assert_same(reader.map(Result::unwrap), &answers);
            // Chunks of other sizes, and threads, give the same answers; blocks are cut by rows, so bytes may differ.
            let (_, _, again) = written(&prepared, CHUNK_BYTES_MAX / 4096);
            // NA is not equal to itself, so digests are compared.
            let digests =
                |all: &[(i64, Answer)]| all.iter().map(|(time, a)| (*time, answer_digest(a))).collect::<Vec<_>>();
            assert_eq!(digests(&again), digests(&answers), "{document}");
            assert_eq!(written(&prepared, CHUNK_BYTES_MAX).0, parquet, "the same bytes twice");
        }
    }
}
