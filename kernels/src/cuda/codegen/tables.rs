//! Kernels that are the same for every plan: they gather features into tensors. Their texts are `kernels/cuda/*.cu`.

use crate::Precision;
use crate::cuda::codegen::lower::{Kernel, fingerprint};

/// Threads of a block of these kernels, one for each element.
pub(crate) const TABLE_THREADS: usize = 256;

/// Rows of a table of features, from outputs of this precision.
pub(crate) fn rows(precision: Precision) -> Kernel {
    let text = include_str!("../../../cuda/table_rows.cu");
    match precision {
        Precision::F64 => kernel("table_rows", text.to_owned(), precision),
        // First: headers are read with it.
        Precision::F32 => kernel("table_rows", format!("#define TRAWL_SHORT\n{text}"), precision),
    }
}

/// Windows over such a table.
pub(crate) fn windows() -> Kernel {
    kernel("table_windows", include_str!("../../../cuda/table_windows.cu").to_owned(), Precision::F64)
}

fn kernel(name: &str, text: String, precision: Precision) -> Kernel {
    let fingerprint = fingerprint(&text);
    let name = format!("{name}_{fingerprint:032x}");
    Kernel {
        source: text.replace('@', &name),
        name,
        fingerprint,
        warps: TABLE_THREADS / 32,
        tile: 0,
        series_rows: 0,
        blocks: 1,
        columns: 0,
        outputs: 0,
        precision,
    }
}

/// All of them.
pub fn table_kernels() -> [Kernel; 3] {
    [rows(Precision::F64), rows(Precision::F32), windows()]
}
