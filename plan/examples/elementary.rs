//! Values of an elementary function: its name is the argument, its arguments are f64 of standard input (little-endian; pairs
//! for `pow`), its values those of standard output. For tools/elementary_accuracy.py.

use std::io::{Read, Write, stdin, stdout};

use trawl_plan::elementary::{acos, asin, atan, cos, cosh, exp, ln, log10, pow, sin, sinh, tan, tanh};

type Named = (&'static str, fn(f64) -> f64);

const FUNCTIONS: [Named; 12] = [
    ("exp", exp),
    ("ln", ln),
    ("log10", log10),
    ("sin", sin),
    ("cos", cos),
    ("tan", tan),
    ("asin", asin),
    ("acos", acos),
    ("atan", atan),
    ("sinh", sinh),
    ("cosh", cosh),
    ("tanh", tanh),
];

fn main() -> std::io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes)?;
    let numbers: Vec<f64> = bytes.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().expect("8 bytes"))).collect();
    let values: Vec<f64> = if name == "pow" {
        numbers.chunks_exact(2).map(|pair| pow(pair[0], pair[1])).collect()
    } else {
        let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
        let (_, function) = known.unwrap_or_else(|| panic!("no elementary function is called '{name}'"));
        numbers.into_iter().map(function).collect()
    };
    let out: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    stdout().write_all(&out)
}
