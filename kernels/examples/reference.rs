//! `trawl compute` in double-double arithmetic: every expression of a CSV by the oracle's definitions, slowly, one
//! column each, rounded to `f64` at the end. `tools/live` measures errors against it.
//!
//!     reference --input BARS.csv --output OUT.csv --expr EXPR [--expr EXPR]...

#[path = "../tests/engine/double.rs"]
mod double;
#[path = "../tests/engine/number.rs"]
mod number;
#[path = "../tests/engine/oracle.rs"]
mod oracle;
#[path = "../tests/engine/rich.rs"]
mod rich;
#[path = "../tests/engine/trend.rs"]
mod trend;

use std::error::Error;
use std::io::Write;

use double::Double;
use number::Number;
use trawl_plan::graph::Op;
use trawl_plan::program::Input;
use trawl_plan::{Schema, compile_expressions};

struct Arguments {
    input: String,
    output: String,
    expressions: Vec<String>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut input, mut output, mut expressions) = (None, None, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--input" => input = Some(value),
            "--output" => output = Some(value),
            "--expr" => expressions.push(value),
            other => return Err(format!("what is {other}?").into()),
        }
    }
    Ok(Arguments {
        input: input.ok_or("--input is missing")?,
        output: output.ok_or("--output is missing")?,
        expressions,
    })
}

type Series = Vec<Double>;

/// Reads names and columns; anything that is not a number is NA.
fn read(path: &str) -> Result<(Vec<String>, Vec<Series>), Box<dyn Error>> {
    let mut reader = csv::Reader::from_path(path)?;
    let names: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let mut columns = vec![Vec::new(); names.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(&record?) {
            column.push(Double::of(cell.parse().unwrap_or(f64::NAN)));
        }
    }
    Ok((names, columns))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let (names, columns) = read(&arguments.input)?;
    let bars = columns.first().map_or(0, Vec::len);
    let plan = compile_expressions(&arguments.expressions, "reference", &Schema::of_columns(names.clone()))
        .map_err(|mistakes| mistakes[0].to_string())?;
    let program = plan.program();
    let mut series: Vec<Series> = Vec::with_capacity(program.nodes().len());
    for node in program.nodes() {
        let values = if let Op::Column(i) = node.op {
            match &program.inputs[usize::from(i)] {
                Input::Column(name) => {
                    columns[names.iter().position(|n| n == name).ok_or("a column that is not there")?].clone()
                }
                other => return Err(format!("{other:?} is not a column of a file").into()),
            }
        } else if let Op::Constant(bits) = node.op {
            vec![Double::of(bits.value()); bars]
        } else {
            let inputs: Vec<&[Double]> = node.inputs.iter().map(|id| series[id.index()].as_slice()).collect();
            oracle::primitive(node.op, &inputs, bars)
        };
        series.push(values);
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(&arguments.output)?);
    let heads: Vec<String> = (0..program.outputs.len()).map(|i| format!("c{i}")).collect();
    writeln!(file, "i,{}", heads.join(","))?;
    let outputs: Vec<&Series> = program.outputs.iter().map(|id| &series[id.index()]).collect();
    for t in 0..bars {
        write!(file, "{t}")?;
        for output in &outputs {
            let value = output[t].value();
            // Shortest digits that read back the same.
            if value.is_nan() { write!(file, ",")? } else { write!(file, ",{value:?}")? }
        }
        writeln!(file)?;
    }
    file.flush()?;
    Ok(())
}
