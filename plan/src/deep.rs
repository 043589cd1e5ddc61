//! Room for texts that are nested deeply. Parsing and resolving take a few calls for each level; how much of the stack these take
//! is up to the compiler: without optimisation several times as much as with it, and more than some callers have. So such a text
//! is compiled on a stack that holds the deepest legal one in every build.

/// The stack of a deep text: `EXPRESSION_DEPTH_MAX` levels take less than a tenth of it in a build without optimisation. Memory is
/// taken only as far as it is used.
const STACK_BYTES: usize = 64 << 20;
/// Marks and names that may each be a level; a text with fewer is compiled where it is called for.
const LEVELS_MAX: usize = 48;

/// At most how many levels texts may have: what opens one is a mark, or a name in `names`.
pub(crate) fn levels<'t>(texts: impl IntoIterator<Item = &'t str>, names: usize) -> usize {
    let marks = |text: &str| text.bytes().filter(|byte| b"([-".contains(byte)).count() + text.matches("not").count();
    texts.into_iter().map(marks).sum::<usize>() + names
}

/// Does `work`, with room for so many levels.
pub(crate) fn with_room<T: Send>(levels: usize, work: impl FnOnce() -> T + Send) -> T {
    if levels <= LEVELS_MAX {
        return work();
    }
    let mut work = Some(work);
    let mut made = None;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("trawl-plan".to_owned()).stack_size(STACK_BYTES);
        let run = || made = work.take().map(|work| work());
        // Without a thread it is done below, on the stack that there is.
        if let Ok(thread) = thread.spawn_scoped(scope, run)
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    });
    match (made, work) {
        (Some(made), _) => made,
        (None, Some(work)) => work(),
        (None, None) => unreachable!("work that was taken has made something or panicked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_work_has_more_stack_than_its_caller() {
        /// Takes more than 512 KiB.
        #[inline(never)]
        fn deep() -> u8 {
            let mut large = std::hint::black_box([1u8; 4 << 20]);
            large[1] = 2;
            std::hint::black_box(large)[1]
        }
        let caller = std::thread::Builder::new().stack_size(512 * 1024);
        let thread = caller.spawn(|| with_room(LEVELS_MAX + 1, deep)).expect("a thread");
        assert_eq!(thread.join().expect("no panic"), 2);
    }

    #[test]
    fn a_panic_is_the_callers() {
        let panic = std::panic::catch_unwind(|| with_room(LEVELS_MAX + 1, || panic!("of the work")));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"of the work"));
    }

    #[test]
    fn what_may_open_a_level_is_counted() {
        assert_eq!(levels(["abs(-close[1]) > 1 and not a", "b"], 2), 3 + 1 + 2);
    }
}
