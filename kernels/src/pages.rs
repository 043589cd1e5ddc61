//! Large arrays in large pages: what the system is asked for, and may refuse.

/// Bytes below which an array is left as it is: it would fill no large page.
#[cfg(target_os = "linux")]
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the system to back an array that is about to be filled with large pages, so that it is entered page by page a few hundred times
/// less often. The values are not touched; nothing depends on whether the system does it.
#[cfg(target_os = "linux")]
pub fn advise_large_pages(values: &mut [f64]) {
    let page = rustix::param::page_size();
    let begin = values.as_mut_ptr() as usize;
    let end = begin + size_of_val(values);
    let (first, last) = (begin.next_multiple_of(page), end - end % page);
    if last.saturating_sub(first) < LARGE_PAGE_BYTES {
        return;
    }
    let offset = first - begin;
    // SAFETY: the pages lie within the array, which is borrowed exclusively, and the advice changes neither their content nor whether
    // they may be accessed.
    let _ = unsafe {
        let at = values.as_mut_ptr().cast::<u8>().add(offset).cast();
        rustix::mm::madvise(at, last - first, rustix::mm::Advice::LinuxHugepage)
    };
}

/// The same on other systems, which decide themselves.
#[cfg(not(target_os = "linux"))]
pub fn advise_large_pages(_values: &mut [f64]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_length_stay() {
        for length in [0, 1, 511, 512, 1 << 20] {
            let mut values: Vec<f64> = (0..length).map(f64::from).collect();
            advise_large_pages(&mut values);
            assert!(values.iter().enumerate().all(|(i, value)| *value == i as f64));
        }
    }
}
