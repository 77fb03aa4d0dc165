//! The structure of the source: folders stand on floors, and neither files nor folders stand in a
//! circle.

mod pages;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use self::source::{Arrow, Source};

/// The floors of the folders and files of the core's `src`, from the ground up. Nothing imports
/// from a floor above its own.
const FLOORS: &[&[&str]] = &[
    &[
        "any_value",
        "call_kind",
        "chance",
        "depth",
        "function",
        "json_types",
        "lock",
        "maybe_future",
        "metadata",
        "on_drop",
        "panic",
        "serve",
        "state",
        "type_name",
        "version",
    ],
    &["message"],
    &["conversation"],
    &["error"],
    &["gauge", "stream"],
    &["call", "context"],
    &["tool"],
    &["model"],
    &["run"],
    &["callback"],
    &["agent"],
    &["compat"],
    &["guide"],
];

#[test]
fn imports_point_down_only() {
    let arrows = arrows_of("src");
    let up: Vec<_> = arrows.iter().filter(|arrow| points_up(arrow)).collect();
    assert!(up.is_empty(), "these point up:\n{}", lines(&up));
    // The test has read something.
    assert!(
        arrows
            .iter()
            .any(|arrow| arrow.is(("src/run/request.rs", "src/context/run_context.rs")))
    );
}

/// The root stands on all floors: what is taken from there points up.
#[test]
fn nothing_is_imported_from_the_root() {
    for package in packages() {
        let root = format!("{package}/lib.rs");
        let arrows = arrows_of(&package);
        let up: Vec<_> = arrows.iter().filter(|arrow| arrow.to == root).collect();
        assert!(up.is_empty(), "these point up:\n{}", lines(&up));
    }
}

/// Semantics of other frameworks are a leaf: what they need of a band is one trait.
#[test]
fn nothing_imports_the_semantics_of_other_frameworks() {
    let mut arrows = arrows_of("src");
    arrows.retain(|arrow| room(&arrow.to) == Some("compat") && room(&arrow.from) != Some("compat"));
    assert!(arrows.is_empty(), "these do:\n{}", lines(&arrows));
}

/// A value of any type hides what one floor takes from another. These files may have one: maps of
/// what users put into them, caught panics, layers whose type is still known, the outline of an
/// agent that its tool carries for `explain`.
#[test]
fn values_of_any_type_belong_to_users() {
    let allowed = [
        "src/any_value.rs",
        "src/call/attempts.rs",
        "src/callback/names.rs",
        "src/context/extensions.rs",
        "src/context/values.rs",
        "src/panic.rs",
        "src/tool/tool.rs",
    ];
    let source = Source::read(repository(), "src");
    let naming = source.files_naming(&["Any", "AnyValue"]);
    assert_eq!(Vec::from_iter(naming), allowed);
}

/// Neither by imports nor by methods whose `impl` stands in another file than their type.
#[test]
fn neither_files_nor_folders_stand_in_a_circle() {
    let mut circles = Vec::new();
    for package in packages() {
        let arrows = arrows_of(&package);
        circles.extend(
            circle(&Vec::from_iter(&arrows))
                .iter()
                .map(ToString::to_string),
        );
    }
    assert!(
        circles.is_empty(),
        "these need each other:\n{}",
        lines(&circles)
    );
}

/// A name means one thing in a crate. Public types may share one: their users name them with their
/// module, such as `future::ResponseFuture`.
#[test]
fn no_private_type_has_the_name_of_another() {
    let mut shared = Vec::new();
    for package in packages() {
        shared.extend(Source::read(repository(), &package).shared_names());
    }
    assert!(
        shared.is_empty(),
        "these names have several types:\n{}",
        lines(&shared)
    );
}

/// Public names that several crates have: the words of a protocol or of tower, a sealed trait's
/// token, and what each engine has of its own. In any other case a reader has to ask which is
/// meant.
const SHARED: &[&str] = &[
    "Engine",
    "Event",
    "EventKind",
    "Interrupt",
    "Message",
    "Messages",
    "ResponseBody",
    "ResponseFuture",
    "RunHandle",
    "Seal",
    "Tool",
    "ToolCall",
    "Worker",
    "WorkerBuilder",
];

#[test]
fn a_public_name_means_one_thing_in_all_crates() {
    let mut crates = BTreeMap::<String, Vec<String>>::new();
    for package in packages() {
        // What is published.
        if package == "src" || package.contains("/tower-agent") {
            for name in Source::read(repository(), &package).public_types() {
                crates.entry(name).or_default().push(package.clone());
            }
        }
    }
    crates.retain(|_, crates| crates.len() > 1);
    let known: BTreeSet<_> = SHARED.iter().map(|name| (*name).to_owned()).collect();
    let shared: BTreeSet<_> = crates.keys().cloned().collect();
    assert_eq!(shared, known, "{crates:#?}");
}

/// A folder hands things on to those outside: inside, the file that defines a thing is named.
#[test]
fn nothing_is_taken_through_the_folder_it_stands_in() {
    for package in packages() {
        let detours = Source::read(repository(), &package).detours();
        assert!(
            detours.is_empty(),
            "these go through a folder around them:\n{}",
            lines(&detours)
        );
    }
}

/// The folders of the workspace that have a `lib.rs`.
fn packages() -> Vec<String> {
    let crates = fs::read_dir(repository().join("crates"))
        .into_iter()
        .flatten();
    let names = crates.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    let folders = names.map(|name| format!("crates/{name}/src"));
    let has_lib = |folder: &String| repository().join(folder).join("lib.rs").exists();
    folders.filter(has_lib).chain(["src".to_owned()]).collect()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Without those of the crate's own face, which hands on what stands on all floors.
fn arrows_of(package: &str) -> Vec<Arrow> {
    let face = format!("{package}/lib.rs");
    let mut arrows = Source::read(repository(), package).arrows();
    arrows.retain(|arrow| arrow.from != face);
    arrows
}

fn points_up(arrow: &Arrow) -> bool {
    let (Some(here), Some(there)) = (room(&arrow.from), room(&arrow.to)) else {
        return false;
    };
    floor(there) > floor(here)
}

/// The folder or file of the core's `src` that a file is in.
fn room(file: &str) -> Option<&str> {
    let room = file.strip_prefix("src/")?.split('/').next()?;
    Some(room.trim_end_matches(".rs"))
}

fn floor(room: &str) -> usize {
    FLOORS
        .iter()
        .position(|rooms| rooms.contains(&room))
        .unwrap_or_else(|| panic!("`{room}` stands on no floor: add it to FLOORS"))
}

/// The arrows of a circle, between files or between what stands side by side in a folder; none if
/// there is no circle.
fn circle<'a>(arrows: &[&'a Arrow]) -> Vec<&'a Arrow> {
    let folder_ends = |arrow: &&'a Arrow| arrow.from.match_indices('/').map(|(end, _)| end + 1);
    let folders = arrows
        .iter()
        .flat_map(|arrow| folder_ends(arrow).map(|end| &arrow.from[..end]));
    let folders: BTreeSet<_> = folders.map(Some).chain([None]).collect();
    let circles = folders.into_iter().map(|folder| {
        let part = |file: &'a str| match folder {
            Some(folder) => file.strip_prefix(folder)?.split('/').next(),
            None => Some(file),
        };
        let ends = arrows.iter().filter_map(|arrow| {
            let (from, to) = (part(&arrow.from)?, part(&arrow.to)?);
            (from != to).then_some((from, to, *arrow))
        });
        let mut circles = in_circles(ends.collect());
        // One of them is enough to read.
        for (.., arrow) in circles.clone() {
            let others = circles
                .iter()
                .filter(|(.., other)| !std::ptr::eq(*other, arrow));
            let others = in_circles(others.copied().collect());
            circles = if others.is_empty() { circles } else { others };
        }
        circles
    });
    let circle = circles
        .filter(|circle| !circle.is_empty())
        .min_by_key(Vec::len);
    circle
        .into_iter()
        .flatten()
        .map(|(.., arrow)| arrow)
        .collect()
}

/// An arrow, and what it is drawn between.
type Drawn<'a> = (&'a str, &'a str, &'a Arrow);

/// Returns the arrows that are left once all that lead nowhere, or that nothing leads to, are
/// removed.
fn in_circles(mut arrows: Vec<Drawn<'_>>) -> Vec<Drawn<'_>> {
    loop {
        let starts: BTreeSet<_> = arrows.iter().map(|(from, ..)| *from).collect();
        let ends: BTreeSet<_> = arrows.iter().map(|(_, to, _)| *to).collect();
        let before = arrows.len();
        arrows.retain(|(from, to, _)| ends.contains(from) && starts.contains(to));
        if arrows.len() == before {
            return arrows;
        }
    }
}

fn lines(arrows: &[impl ToString]) -> String {
    Vec::from_iter(arrows.iter().map(ToString::to_string)).join("\n")
}
