//! The answer as CSV: the shortest digits of a number that read back as the same bits, empty for NA, `inf` and `-inf`; `true` and `false`
//! for conditions; quotes only where needed, lines end in LF.

use std::io::Write;

use trawl_plan::{ANSWER_COLUMNS, ANSWER_TIME, ColumnKind, Setting};
use trawl_wire::Answer;

use super::{select_kind, select_text, setting_names, settings_of, time_text};
use crate::human::push_exact;

/// Writes all rows. Select columns are empty for symbols that did not match.
///
/// # Errors
/// The writer's error.
pub fn write(answer: &Answer, writer: &mut impl Write) -> anyhow::Result<()> {
    let mut csv = ::csv::Writer::from_writer(writer);
    header(answer, &mut csv)?;
    rows(answer, &mut csv)?;
    csv.flush()?;
    Ok(())
}

/// Writes the header.
///
/// # Errors
/// The writer's error.
pub fn header(answer: &Answer, csv: &mut ::csv::Writer<impl Write>) -> anyhow::Result<()> {
    let settings = setting_names(answer);
    let select = answer.select.iter().map(String::as_str);
    csv.write_record([ANSWER_TIME].into_iter().chain(settings).chain(ANSWER_COLUMNS).chain(select))?;
    Ok(())
}

/// Writes the rows.
///
/// # Errors
/// The writer's error.
pub fn rows(answer: &Answer, csv: &mut ::csv::Writer<impl Write>) -> anyhow::Result<()> {
    let time = time_text(answer);
    let boolean = |flag: bool| if flag { "true" } else { "false" };
    let mut text = String::new();
    for row in &answer.rows {
        let place = row.place.map_or_else(String::new, |place| place.to_string());
        csv.write_field(&time)?;
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
            let value = row.row.values.get(i).copied().unwrap_or(f64::NAN);
            if let Some(text) = select_text(select_kind(answer, i), value) {
                csv.write_field(&text)?;
                continue;
            }
            text.clear();
            if *select_kind(answer, i) == ColumnKind::Number {
                push_exact(&mut text, value);
            }
            csv.write_field(&text)?;
        }
        csv.write_record(None::<&[u8]>)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_testing::sample_answer as sample;

    #[test]
    fn the_file_is_what_a_reader_expects() {
        let mut bytes = Vec::new();
        write(&sample(), &mut bytes).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "time,place,symbol,status,edge,provisional,reason,close,\"a, \"\"b\"\"\"\n\
             2013-02-22,1,IBM,matched,false,false,,201.09,\n\
             2013-02-22,2,ÅÄÖ,matched,false,false,,0.1,inf\n\
             2013-02-22,,ZZZ,matched,true,false,,-1e-7,-inf\n\
             2013-02-22,,AAPL,not_matched,false,false,,,\n\
             2013-02-22,,FB,unknown,false,false,\"too short: 120 bars, 202 needed\",,\n\
             2013-02-22,,GOOG,stale,false,false,\"no bar since \"\"2012\"\", sorry\",,\n\
             2013-02-22,,MSFT,failed,false,false,checksum differs,,\n\
             2013-02-22,,XOM,outside,false,false,universe is false,,\n"
        );
    }
}
