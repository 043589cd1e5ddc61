//! Lists the calendars: every `data/calendars/*.txt` becomes one that `Calendar::named` finds, in the order of their
//! names.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("data/calendars");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>, std::io::Error>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "txt"));
    let mut calendars = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path)?;
        let name = text.lines().find_map(|line| line.strip_prefix("name ")).map(str::trim);
        let name = name.ok_or_else(|| format!("{} has no line 'name'", path.display()))?;
        calendars.push((name.to_owned(), path));
    }
    calendars.sort();
    if let Some(twice) = calendars.windows(2).find(|two| two[0].0.eq_ignore_ascii_case(&two[1].0)) {
        return Err(format!("two files are calendar {}", twice[0].0).into());
    }
    let names: Vec<&str> = calendars.iter().map(|(name, _)| name.as_str()).collect();
    let texts = calendars.iter().map(|(_, path)| format!("    include_str!({path:?}),\n")).collect::<String>();
    let code = format!(
        "/// Names that [`Calendar::named`] accepts.\npub const CALENDARS: [&str; {count}] = {names:?};\n\
         /// The content of each one's file.\npub(super) const TEXTS: [&str; {count}] = [\n{texts}];\n",
        count = calendars.len(),
    );
    fs::write(Path::new(&env::var("OUT_DIR")?).join("calendars.rs"), code)?;
    Ok(())
}
