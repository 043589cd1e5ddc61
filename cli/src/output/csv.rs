//! The answer as CSV: the shortest digits of a number that read back as the same bits, empty for NA, `inf` and `-inf`; quotes only where needed, lines end in LF.

use std::io::Write;

use trawl_plan::{ANSWER_COLUMNS, Setting};
use trawl_wire::Answer;

use super::{setting_names, settings_of};
use crate::human::push_exact;

/// Writes all rows. Select columns are empty for symbols that did not match.
///
/// # Errors
/// The writer's error.
pub fn write(answer: &Answer, writer: &mut impl Write) -> anyhow::Result<()> {
    let mut csv = ::csv::Writer::from_writer(writer);
    header(answer, None, &mut csv)?;
    rows(answer, None, &mut csv)?;
    csv.flush()?;
    Ok(())
}

/// Writes the header; `first` is an additional first column when answers of several times share a file.
///
/// # Errors
/// The writer's error.
pub fn header(answer: &Answer, first: Option<&str>, csv: &mut ::csv::Writer<impl Write>) -> anyhow::Result<()> {
    let settings = setting_names(answer);
    let select = answer.select.iter().map(String::as_str);
    csv.write_record(first.into_iter().chain(settings).chain(ANSWER_COLUMNS).chain(select))?;
    Ok(())
}

/// Writes the rows, each with `first` as its first cell if given.
///
/// # Errors
/// The writer's error.
pub fn rows(answer: &Answer, first: Option<&str>, csv: &mut ::csv::Writer<impl Write>) -> anyhow::Result<()> {
    let mut text = String::new();
    for row in &answer.rows {
        let place = row.place.map_or_else(String::new, |place| place.to_string());
        if let Some(first) = first {
            csv.write_field(first)?;
        }
        for (_, value) in settings_of(answer, row) {
            match value {
                Setting::Number(value) => {
                    text.clear();
                    push_exact(&mut text, *value);
                    csv.write_field(&text)?;
                }
                Setting::Text(word) => csv.write_field(word)?,
            }
        }
        let boolean = |flag: bool| if flag { "true" } else { "false" };
        let flagged = &row.row;
        let fixed = [
            &place,
            &flagged.symbol,
            flagged.status.name(),
            boolean(flagged.edge),
            boolean(flagged.provisional),
            &flagged.reason,
        ];
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
            "place,symbol,status,edge,provisional,reason,close,\"a, \"\"b\"\"\"\n\
             1,IBM,matched,false,false,,201.09,\n\
             2,ÅÄÖ,matched,false,false,,0.1,inf\n\
             ,ZZZ,matched,true,false,,-1e-7,-inf\n\
             ,AAPL,not_matched,false,false,,,\n\
             ,FB,unknown,false,false,\"too short: 120 bars, 202 needed\",,\n\
             ,GOOG,stale,false,false,\"no bar since \"\"2012\"\", sorry\",,\n\
             ,MSFT,failed,false,false,checksum differs,,\n\
             ,XOM,outside,false,false,universe is false,,\n"
        );
    }
}
