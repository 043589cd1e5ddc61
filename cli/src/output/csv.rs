//! The answer as CSV: 17 significant digits, empty for NA, `inf` and `-inf`; quotes only where needed, lines end in LF.

use std::io::Write;

use trawl_protocol::Answer;

use super::FIXED_COLUMNS;
use crate::number::push_exact;

/// Writes all rows. Select columns are empty for symbols that did not match.
///
/// # Errors
/// What the writer says.
pub fn write(answer: &Answer, writer: &mut impl Write) -> anyhow::Result<()> {
    let mut csv = ::csv::Writer::from_writer(writer);
    csv.write_record(FIXED_COLUMNS.into_iter().chain(answer.select.iter().map(String::as_str)))?;
    let mut text = String::new();
    for row in &answer.rows {
        let place = row.place.map_or_else(String::new, |place| place.to_string());
        let fixed = [&place, &row.row.symbol, row.row.status.name(), &row.row.reason];
        for field in fixed {
            csv.write_field(field)?;
        }
        for i in 0..answer.select.len() {
            text.clear();
            push_exact(&mut text, row.row.values.get(i).copied().unwrap_or(f64::NAN));
            csv.write_field(&text)?;
        }
        csv.write_record(None::<&[u8]>)?;
    }
    csv.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_file_is_what_a_reader_expects() {
        let mut bytes = Vec::new();
        write(&sample(), &mut bytes).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "place,symbol,status,reason,close,\"a, \"\"b\"\"\"\n\
             1,IBM,matched,,201.09,\n\
             2,ÅÄÖ,matched,,0.10000000000000001,inf\n\
             ,ZZZ,matched,,-9.9999999999999995e-08,-inf\n\
             ,AAPL,not_matched,,,\n\
             ,FB,unknown,\"too short: 120 bars, 202 needed\",,\n\
             ,GOOG,stale,\"no bar since \"\"2012\"\", sorry\",,\n\
             ,MSFT,failed,checksum differs,,\n\
             ,XOM,outside,universe is false,,\n"
        );
    }
}
