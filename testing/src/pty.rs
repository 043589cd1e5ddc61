//! A pseudo terminal: what a program draws on it, what is typed, how large it is, and in which state it is left.
//!
//! It understands what full-screen programs write: text, moves of the cursor, clearing, the alternate screen and the cursor's
//! visibility. Colours are ignored. Every character takes one cell.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(20);

/// What is on the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Screen {
    /// Rows of characters.
    cells: Vec<Vec<char>>,
    cursor: (usize, usize),
    /// Whether a program has the alternate screen.
    pub alternate: bool,
    /// Whether the cursor is hidden.
    pub cursor_hidden: bool,
}

impl Screen {
    fn new(columns: u16, rows: u16) -> Self {
        Self { cells: vec![vec![' '; columns.into()]; rows.into()], ..Self::default() }
    }

    /// The rows, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    fn put(&mut self, character: char) {
        let (row, column) = self.cursor;
        if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = character;
        }
        self.cursor.1 += 1;
    }

    fn clear(&mut self) {
        self.cells.iter_mut().flatten().for_each(|cell| *cell = ' ');
    }

    /// Takes what was written; returns how many bytes of it were complete.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let used = match byte {
                0x1b => self.sequence(&bytes[at..]),
                b'\n' => {
                    self.cursor.0 += 1;
                    1
                }
                b'\r' => {
                    self.cursor.1 = 0;
                    1
                }
                0..0x20 => 1,
                _ => {
                    let length = match byte {
                        0xf0.. => 4,
                        0xe0.. => 3,
                        0xc0.. => 2,
                        _ => 1,
                    };
                    bytes.get(at..at + length).map_or(0, |character| {
                        let text = std::str::from_utf8(character).unwrap_or("\u{fffd}");
                        text.chars().for_each(|character| self.put(character));
                        length
                    })
                }
            };
            if used == 0 {
                break;
            }
            at += used;
        }
        at
    }

    /// A sequence that begins with escape; 0 if its end has not arrived.
    fn sequence(&mut self, bytes: &[u8]) -> usize {
        let Some(kind) = bytes.get(1) else { return 0 };
        if *kind != b'[' {
            return 2;
        }
        let Some(end) = bytes.iter().skip(2).position(|byte| (0x40..0x7f).contains(byte)) else { return 0 };
        let parameters = String::from_utf8_lossy(&bytes[2..2 + end]).into_owned();
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<usize>().ok()).unwrap_or(1).max(1) - 1;
        match (bytes[2 + end], parameters.as_str()) {
            (b'H', place) => {
                let mut place = place.split(';');
                self.cursor = (number(place.next()), number(place.next()));
            }
            (b'J', _) => self.clear(),
            (b'h' | b'l', "?1049") => {
                self.alternate = bytes[2 + end] == b'h';
                self.clear();
            }
            (b'h' | b'l', "?25") => self.cursor_hidden = bytes[2 + end] == b'l',
            _ => {}
        }
        3 + end
    }
}

/// The terminal. A program on it sees its end when this is dropped.
#[derive(Debug)]
pub struct Pty {
    master: File,
    user: OwnedFd,
    screen: Arc<Mutex<Screen>>,
    /// Everything that was written, as it was written.
    written: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    /// A terminal of this size.
    ///
    /// # Panics
    /// This machine has no pseudo terminals.
    pub fn open(columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&master).expect("it may be used");
        unlockpt(&master).expect("it can be unlocked");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let user = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
        let (master, user) = (File::from(master), user.expect("its other side can be opened"));
        let screen = Arc::new(Mutex::new(Screen::new(columns, rows)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut from = master.try_clone().expect("a second handle");
        let (shown, kept) = (Arc::clone(&screen), Arc::clone(&written));
        std::thread::spawn(move || {
            let (mut part, mut rest) = ([0; 4096], Vec::new());
            // Fails when the last program on the other side is gone and `user` is closed.
            while let Ok(count) = from.read(&mut part) {
                lock(&kept).extend_from_slice(&part[..count]);
                rest.extend_from_slice(&part[..count]);
                let taken = lock(&shown).take(&rest);
                rest.drain(..taken);
            }
        });
        let terminal = Self { master, user, screen, written };
        terminal.set_size(columns, rows);
        terminal
    }

    fn set_size(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).expect("its size can be set");
    }

    /// Another size, and an empty screen; the program on it gets the signal that a terminal sends.
    ///
    /// # Panics
    /// The program is gone.
    pub fn resize(&self, columns: u16, rows: u16, program: &Child) {
        {
            let mut screen = lock(&self.screen);
            *screen = Screen { cells: Screen::new(columns, rows).cells, cursor: (0, 0), ..screen.clone() };
        }
        self.set_size(columns, rows);
        // It is not the program's controlling terminal, so the kernel does not send it.
        let pid = rustix::process::Pid::from_child(program);
        rustix::process::kill_process(pid, rustix::process::Signal::WINCH).expect("the program runs");
    }

    /// Starts a program on it.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(&self, command: &mut Command) -> Child {
        let side = || Stdio::from(self.user.try_clone().expect("a handle for the program"));
        command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the program can be started")
    }

    /// Types bytes.
    ///
    /// # Panics
    /// The terminal is gone.
    pub fn send(&self, keys: &[u8]) {
        (&self.master).write_all(keys).expect("keys can be typed");
    }

    /// Waits until the screen is as `wanted` says, and returns it.
    ///
    /// # Panics
    /// The bound has passed, with the screen.
    #[track_caller]
    pub fn wait_for(&self, bound: Duration, wanted: impl Fn(&Screen) -> bool) -> Screen {
        let deadline = Instant::now() + bound;
        loop {
            let screen = lock(&self.screen).clone();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "not seen within {bound:?}:\n{}", screen.lines().join("\n"));
            std::thread::sleep(POLL);
        }
    }

    /// Everything that was written, as text.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&lock(&self.written)).into_owned()
    }

    /// Its modes: whether keys are echoed, lines collected, and so on.
    ///
    /// # Panics
    /// They cannot be read.
    pub fn modes(&self) -> Termios {
        tcgetattr(self.user.as_fd()).expect("the modes can be read")
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_clearing_and_the_alternate_screen_are_understood_however_they_are_cut() {
        let bytes = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[2;3Hab\u{1b}[1mµ\u{1b}[0m\u{1b}[1;1H↑x".as_bytes();
        for cut in 0..bytes.len() {
            let mut screen = Screen::new(6, 2);
            let taken = screen.take(&bytes[..cut]);
            screen.take(&bytes[taken..]);
            assert_eq!(screen.lines(), ["↑x", "  abµ"], "cut at {cut}");
            assert!(screen.alternate && screen.cursor_hidden);
        }
        let mut screen = Screen::new(3, 1);
        screen.take(b"abcdef\x1b[2J");
        assert_eq!(screen.lines(), [""]);
    }
}
