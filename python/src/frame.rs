//! The rows of a frame by symbol: where each symbol's bars are, oldest first, and the way back to the frame's order.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Date64Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, Float64Array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use trawl_front::UserMistake;
use trawl_market::{TimeMicros, Zone};

use crate::arrow_c::Table;

/// Rows whose symbols a thread compares at once.
pub const ROWS_AT_ONCE: usize = 1 << 16;
const DAY_MICROS: i64 = 86_400_000_000;
const SECOND_MICROS: i64 = 1_000_000;

/// The rows of a frame by symbol.
#[derive(Debug)]
pub struct Rows {
    /// Number of rows.
    pub height: usize,
    /// Name of each symbol, and its rows in the order by symbol.
    pub spans: Vec<(String, Range<usize>)>,
    /// The row of the frame for each row in the order by symbol; `None` where both orders are one.
    order: Option<Vec<u32>>,
    /// Time of each row in the order by symbol, in microseconds; those of days as 00:00 UTC of the date.
    pub times: Option<Vec<TimeMicros>>,
    /// Whether these are times of day of a zone that nobody has said.
    pub without_zone: bool,
}

impl Rows {
    /// A column of numbers in the order by symbol; the frame's own memory where it is of f64, without nulls, in one piece and in this
    /// order already.
    pub fn numbers(&self, table: &Table, name: &str) -> anyhow::Result<Float64Array> {
        let values = numbers(table, name)?;
        Ok(match &self.order {
            None => values,
            Some(order) => {
                let from = values.values();
                order.iter().map(|row| from[*row as usize]).collect::<Vec<f64>>().into()
            }
        })
    }

    /// Whether the order by symbol is that of the frame.
    pub fn is_in_frame_order(&self) -> bool {
        self.order.is_none()
    }

    /// Which rows are known, by the runs of rows of symbols that are not.
    pub fn known(&self, missing: impl Iterator<Item = (usize, Range<usize>)>) -> BooleanBuffer {
        let mut known = BooleanBufferBuilder::new(self.height);
        known.append_n(self.height, true);
        for (symbol, rows) in missing {
            let begin = self.spans[symbol].1.start;
            rows.for_each(|row| known.set_bit(begin + row, false));
        }
        known.finish()
    }

    /// Values in the order by symbol, in the order of the frame.
    pub fn in_frame_order(&self, values: ScalarBuffer<f64>) -> ScalarBuffer<f64> {
        let Some(order) = &self.order else { return values };
        let mut placed = vec![0.0; values.len()];
        for (row, value) in order.iter().zip(&values[..]) {
            placed[*row as usize] = *value;
        }
        placed.into()
    }
}

/// The rows by symbol; one symbol without `symbols`. With `time`, the bars of each symbol have to be in order of time, oldest or newest
/// first. `zone` is that of times without one.
///
/// # Errors
/// A [`UserMistake`]: no such column, a column of another type, a missing symbol or time, times that are not in order.
pub fn rows_of(table: &Table, symbols: Option<&str>, time: Option<&str>, zone: Option<Zone>) -> anyhow::Result<Rows> {
    let height = table.rows();
    if u32::try_from(height).is_err() {
        return Err(
            UserMistake::with_help(format!("the frame has {height} rows"), "compute it in several parts").into()
        );
    }
    let (mut spans, mut order) = match symbols {
        Some(name) => by_symbol(&column(table, name)?, name)?,
        None => (vec![(String::new(), 0..height)], None),
    };
    let read = time.map(|name| times(&column(table, name)?, name, zone)).transpose()?;
    let (mut times, without_zone) = read.map_or((None, false), |(times, without_zone)| (Some(times), without_zone));
    if let (Some(times), Some(order)) = (&mut times, &order) {
        *times = order.iter().map(|row| times[*row as usize]).collect();
    }
    if let Some(times) = &mut times {
        reverse_newest_first(&mut spans, &mut order, times, height)?;
    }
    Ok(Rows { height, spans, order, times, without_zone })
}

/// Turns symbols around whose newest bar is first, as the files of some vendors are.
fn reverse_newest_first(
    spans: &mut [(String, Range<usize>)],
    order: &mut Option<Vec<u32>>,
    times: &mut [TimeMicros],
    height: usize,
) -> Result<(), UserMistake> {
    for (name, span) in spans {
        let own = &mut times[span.clone()];
        if own.is_sorted_by(|a, b| a < b) {
            continue;
        }
        if own.is_sorted_by(|a, b| a > b) {
            own.reverse();
            // Frames have at most so many rows as u32 counts.
            let order = order.get_or_insert_with(|| (0..height as u32).collect());
            order[span.clone()].reverse();
            continue;
        }
        let at = own.windows(2).position(|pair| pair[0] >= pair[1]).unwrap_or(0);
        let (before, after) = (trawl_market::format_time(own[at]), trawl_market::format_time(own[at + 1]));
        let whose = if name.is_empty() { String::new() } else { format!(" of {name}") };
        let help = "sort the frame by symbol and time, and keep one row for each bar; by='NAME' names the column of symbols, \
                    time='NAME' that of times, time=None leaves times out";
        return Err(UserMistake::with_help(format!("the bar of {after}{whose} is after that of {before}"), help));
    }
    Ok(())
}

type Spans = (Vec<(String, Range<usize>)>, Option<Vec<u32>>);

/// Rows by symbol, in the order of their first rows.
fn by_symbol(array: &ArrayRef, name: &str) -> anyhow::Result<Spans> {
    let array = Arc::clone(array);
    let dictionary = array.as_any_dictionary_opt();
    let kind = dictionary.map_or(array.data_type(), |dictionary| dictionary.values().data_type());
    if !is_name(kind) {
        let message = format!("the column '{name}' of symbols is of type {}", array.data_type());
        return Err(UserMistake::with_help(message, "use texts, categories or whole numbers").into());
    }
    // Categories may be missing, too.
    if array.logical_null_count() > 0 {
        return Err(UserMistake::plain(format!("the column '{name}' has rows without a symbol")).into());
    }
    let height = array.len();
    if height == 0 {
        return Ok((Vec::new(), None));
    }
    let keys = dictionary.map(|dictionary| dictionary.normalized_keys());
    let begins: Vec<usize> = match (&keys, array.data_type()) {
        (Some(keys), _) => begins(height, |a, b| keys[a] == keys[b]),
        (None, DataType::Utf8) => {
            let array = array.as_string::<i32>();
            begins(height, |a, b| array.value(a) == array.value(b))
        }
        (None, DataType::LargeUtf8) => {
            let array = array.as_string::<i64>();
            begins(height, |a, b| array.value(a) == array.value(b))
        }
        (None, DataType::Utf8View) => {
            let array = array.as_string_view();
            let views = array.views();
            // Texts of up to 12 bytes are in the view; longer ones with equal views are one text.
            begins(height, |a, b| views[a] == views[b] || (views[a] as u32 > 12 && array.value(a) == array.value(b)))
        }
        (None, DataType::Int8) => begins_of::<Int8Type>(&array),
        (None, DataType::Int16) => begins_of::<Int16Type>(&array),
        (None, DataType::Int32) => begins_of::<Int32Type>(&array),
        (None, DataType::Int64) => begins_of::<Int64Type>(&array),
        (None, DataType::UInt8) => begins_of::<UInt8Type>(&array),
        (None, DataType::UInt16) => begins_of::<UInt16Type>(&array),
        (None, DataType::UInt32) => begins_of::<UInt32Type>(&array),
        _ => begins_of::<UInt64Type>(&array),
    };
    let ends = begins.iter().skip(1).copied().chain([height]);
    let text = |row: usize| match (&keys, dictionary) {
        (Some(keys), Some(dictionary)) => text_of(dictionary.values(), keys[row]),
        _ => text_of(&array, row),
    };
    let runs: Vec<(String, Range<usize>)> =
        begins.iter().zip(ends).map(|(begin, end)| (text(*begin), *begin..end)).collect();
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(runs.len());
    let mut symbols: Vec<(&str, Vec<Range<usize>>)> = Vec::new();
    for (symbol, rows) in &runs {
        let at = *places.entry(symbol).or_insert_with(|| {
            symbols.push((symbol, Vec::new()));
            symbols.len() - 1
        });
        symbols[at].1.push(rows.clone());
    }
    if symbols.len() == runs.len() {
        return Ok((runs, None));
    }
    let mut order = Vec::with_capacity(height);
    let mut spans = Vec::with_capacity(symbols.len());
    for (symbol, parts) in symbols {
        let begin = order.len();
        // Frames have at most so many rows as u32 counts.
        parts.into_iter().for_each(|rows| order.extend(rows.start as u32..rows.end as u32));
        spans.push((symbol.to_owned(), begin..order.len()));
    }
    Ok((spans, Some(order)))
}

/// The rows that differ from those before them, and the first.
fn begins(height: usize, same: impl Fn(usize, usize) -> bool + Sync) -> Vec<usize> {
    let parts = height.div_ceil(ROWS_AT_ONCE);
    let of = |part: usize| {
        let rows = part * ROWS_AT_ONCE..height.min((part + 1) * ROWS_AT_ONCE);
        rows.filter(|row| *row == 0 || !same(*row - 1, *row)).collect::<Vec<usize>>()
    };
    if parts <= 1 {
        return (0..parts).flat_map(of).collect();
    }
    (0..parts).into_par_iter().map(of).collect::<Vec<_>>().concat()
}

fn begins_of<T: ArrowPrimitiveType>(array: &ArrayRef) -> Vec<usize>
where
    T::Native: PartialEq + Sync,
{
    let values = array.as_primitive::<T>().values();
    begins(array.len(), |a, b| values[a] == values[b])
}

/// Whether values of a type can be names of symbols.
fn is_name(kind: &DataType) -> bool {
    kind.is_integer() || matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// A symbol as text, of a type that [`is_name`].
fn text_of(array: &ArrayRef, row: usize) -> String {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).to_owned(),
        DataType::Utf8View => array.as_string_view().value(row).to_owned(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        _ => array.as_primitive::<UInt64Type>().value(row).to_string(),
    }
}

/// A column in one piece.
fn column(table: &Table, name: &str) -> anyhow::Result<ArrayRef> {
    let Some((at, _)) = table.schema.column_with_name(name) else {
        let names: Vec<&str> = table.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let near = trawl_plan::suggest(name, names.iter().copied());
        let help =
            near.map_or_else(|| format!("its columns: {}", names.join(", ")), |near| format!("did you mean '{near}'?"));
        return Err(UserMistake::with_help(format!("the frame has no column '{name}'"), help).into());
    };
    match table.batches.as_slice() {
        [batch] => Ok(Arc::clone(batch.column(at))),
        [] => Ok(arrow_array::new_empty_array(table.schema.field(at).data_type())),
        several => {
            let parts: Vec<&dyn Array> = several.iter().map(|batch| &**batch.column(at)).collect();
            Ok(arrow_select::concat::concat(&parts)?)
        }
    }
}

/// A column of numbers, NaN for null.
fn numbers(table: &Table, name: &str) -> anyhow::Result<Float64Array> {
    of_numbers(&column(table, name)?, name)
}

fn of_numbers(array: &ArrayRef, name: &str) -> anyhow::Result<Float64Array> {
    fn cast<T: ArrowPrimitiveType>(array: &ArrayRef, of: impl Fn(T::Native) -> f64) -> Float64Array {
        let array = array.as_primitive::<T>();
        array.iter().map(|value| value.map_or(f64::NAN, &of)).collect::<Vec<f64>>().into()
    }
    Ok(match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            if values.null_count() == 0 {
                return Ok(Float64Array::new(values.values().clone(), None));
            }
            cast::<Float64Type>(array, |value| value)
        }
        DataType::Float32 => cast::<Float32Type>(array, f64::from),
        DataType::Int8 => cast::<Int8Type>(array, f64::from),
        DataType::Int16 => cast::<Int16Type>(array, f64::from),
        DataType::Int32 => cast::<Int32Type>(array, f64::from),
        DataType::Int64 => cast::<Int64Type>(array, |value| value as f64),
        DataType::UInt8 => cast::<UInt8Type>(array, f64::from),
        DataType::UInt16 => cast::<UInt16Type>(array, f64::from),
        DataType::UInt32 => cast::<UInt32Type>(array, f64::from),
        DataType::UInt64 => cast::<UInt64Type>(array, |value| value as f64),
        DataType::Boolean => {
            let values = array.as_boolean().iter().map(|value| value.map_or(f64::NAN, |v| f64::from(u8::from(v))));
            values.collect::<Vec<f64>>().into()
        }
        DataType::Null => vec![f64::NAN; array.len()].into(),
        kind => {
            let message = format!("the column '{name}' is of type {kind}, and an expression reads it as numbers");
            return Err(
                UserMistake::with_help(message, "cast it to numbers, or leave it out of the expressions").into()
            );
        }
    })
}

/// A column of times in microseconds, and whether it has times of day whose zone is not known. As in a file: if each is midnight where it
/// is from, they are dates, and 00:00 UTC of these.
fn times(array: &ArrayRef, name: &str, of_naive: Option<Zone>) -> anyhow::Result<(Vec<TimeMicros>, bool)> {
    if array.null_count() > 0 {
        return Err(UserMistake::plain(format!("the column '{name}' has rows without a time")).into());
    }
    let scaled = |values: &[i64], times: i64, by: i64| -> Vec<i64> {
        values.iter().map(|value| value.saturating_mul(times).div_euclid(by)).collect()
    };
    let times = match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().values();
            return Ok((days.iter().map(|day| i64::from(*day) * DAY_MICROS).collect(), false));
        }
        DataType::Date64 => scaled(array.as_primitive::<Date64Type>().values(), 1000, 1),
        DataType::Timestamp(TimeUnit::Second, _) => {
            scaled(array.as_primitive::<TimestampSecondType>().values(), SECOND_MICROS, 1)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            scaled(array.as_primitive::<TimestampMillisecondType>().values(), 1000, 1)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().values().to_vec()
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            scaled(array.as_primitive::<TimestampNanosecondType>().values(), 1, 1000)
        }
        kind => {
            let message = format!("the column '{name}' of times is of type {kind}");
            return Err(UserMistake::with_help(message, "use dates or timestamps; time=None leaves it out").into());
        }
    };
    let zone = match array.data_type() {
        DataType::Timestamp(_, Some(zone)) => Some(Offset::named(zone, name)?),
        _ => None,
    };
    let wall = |time: &TimeMicros| zone.as_ref().map_or(*time, |zone| zone.wall(*time));
    // Of bars within days the first time says that they are no dates.
    if times.iter().all(|time| wall(time).rem_euclid(DAY_MICROS) == 0) {
        return Ok((times.iter().map(wall).collect(), false));
    }
    Ok(match (&zone, of_naive) {
        (None, Some(zone)) => (times.into_iter().map(|time| zone.to_utc(time)).collect(), false),
        (zone, _) => (times, zone.is_none()),
    })
}

/// How far local times are ahead of UTC.
enum Offset {
    Fixed(TimeMicros),
    Zone(Zone),
}

impl Offset {
    /// By a name such as `Europe/Berlin`, or an offset such as `+02:00`, as Arrow has them.
    fn named(zone: &str, column: &str) -> Result<Self, UserMistake> {
        if let Some(ahead) = fixed(zone) {
            return Ok(Self::Fixed(ahead));
        }
        Zone::named(zone).map(Self::Zone).map_err(|error| UserMistake::plain(format!("the column '{column}': {error}")))
    }

    fn wall(&self, time: TimeMicros) -> TimeMicros {
        match self {
            Self::Fixed(ahead) => time.saturating_add(*ahead),
            Self::Zone(zone) => zone.wall(time),
        }
    }
}

/// `+02:00` in microseconds.
fn fixed(text: &str) -> Option<TimeMicros> {
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let minutes = hours.parse::<u8>().ok().map(i64::from)? * 60 + minutes.parse::<u8>().ok().map(i64::from)?;
    Some(sign * minutes * 60 * SECOND_MICROS)
}
