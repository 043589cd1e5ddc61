//! Kernels that are the same for every plan: they lay out bars, and gather features into tensors. Their texts are
//! `kernels/cuda/*.cu`.

use std::sync::OnceLock;

use crate::Precision;
use crate::cuda::codegen::lower::{Kernel, fingerprint};

/// Threads of a block of these kernels.
pub(crate) const FIXED_THREADS: usize = 256;

/// The text in a precision. Its first line says so, since headers are read with it.
fn in_precision(text: &str, precision: Precision) -> String {
    match precision {
        Precision::F64 => text.to_owned(),
        Precision::F32 => format!("#define TRAWL_SHORT\n{text}"),
    }
}

/// Rows of columns, from bars of symbols one after the other. Asked for with every column, so that it is made once.
pub(crate) fn lay_rows(precision: Precision) -> &'static Kernel {
    static MADE: [OnceLock<Kernel>; 2] = [const { OnceLock::new() }; 2];
    let made = &MADE[usize::from(precision == Precision::F32)];
    made.get_or_init(|| {
        let text = in_precision(include_str!("../../../cuda/lay_rows.cu"), precision);
        kernel("lay_rows", text, precision)
    })
}

/// Rows of a table of features, from outputs of this precision.
pub(crate) fn table_rows(precision: Precision) -> Kernel {
    kernel("table_rows", in_precision(include_str!("../../../cuda/table_rows.cu"), precision), precision)
}

/// Windows over such a table.
pub(crate) fn table_windows() -> Kernel {
    kernel("table_windows", include_str!("../../../cuda/table_windows.cu").to_owned(), Precision::F64)
}

fn kernel(name: &str, text: String, precision: Precision) -> Kernel {
    let fingerprint = fingerprint(&text);
    let name = format!("{name}_{fingerprint:032x}");
    Kernel {
        source: text.replace('@', &name),
        name,
        fingerprint,
        warps: FIXED_THREADS / 32,
        tile: 0,
        series_rows: 0,
        blocks: 1,
        columns: 0,
        outputs: 0,
        precision,
    }
}

/// All of them.
pub fn fixed_kernels() -> Vec<Kernel> {
    let mut all = vec![table_windows()];
    for precision in Precision::ALL {
        all.extend([lay_rows(precision).clone(), table_rows(precision)]);
    }
    all
}
