//! A program that works on a run, in processes of their own.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use tower_agent_durable::{Postgres, Sqlite};

use crate::support::fate::{self, Fate, report};
use crate::support::folder::Folder;
use crate::support::place::number;
use crate::support::server::Server;
use crate::support::world::{RUN, World};

const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const DATABASE: &str = "TOWER_AGENT_TEST_DATABASE";
const RUN_ID: &str = "TOWER_AGENT_TEST_RUN";
const IN_SESSION: &str = "TOWER_AGENT_TEST_IN_SESSION";
const FATES: &str = "TOWER_AGENT_TEST_FATES";

/// The program: it goes on with the run, if a test asks for it.
#[test]
fn a_process_that_goes_on_with_a_run() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let (folder, run) = (PathBuf::from(folder), std::env::var(RUN_ID).unwrap());
    let fates = std::env::var(FATES).unwrap();
    let world = World::new(&folder, fates.lines().map(|fate| fate.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ended = runtime.block_on(async {
        if let Ok(url) = std::env::var(DATABASE) {
            return world.go_on(Postgres::connect(&url).await?, &run).await;
        }
        let database = Sqlite::open(folder.join("runs.db")).await?;
        match std::env::var_os(IN_SESSION) {
            Some(_) => world.go_on_in_session(database, &run).await,
            None => world.go_on(database, &run).await,
        }
    });
    match &ended {
        Ok(()) => report("ended"),
        Err(error) => report(&format!("failed: {error}")),
    }
    ended.unwrap();
}

/// A run, and where it is.
pub(super) struct Program {
    folder: Folder,
    database: Option<String>,
    run: String,
    is_in_session: bool,
}

impl Program {
    /// Creates one with a run in a file of its own.
    pub(super) fn in_file() -> Self {
        let folder = Folder::new(&format!("program-{}", number()));
        Self {
            folder,
            database: None,
            run: RUN.to_owned(),
            is_in_session: false,
        }
    }

    /// Creates one with a run of its own on a server.
    pub(super) fn on_server(server: &Server) -> Self {
        let number = number();
        let folder = Folder::new(&format!("program-{number}"));
        let (database, run) = (Some(server.url("postgres")), format!("run {number}"));
        Self {
            folder,
            database,
            run,
            is_in_session: false,
        }
    }

    /// Makes the run one of a session.
    pub(super) fn in_session(self) -> Self {
        Self {
            is_in_session: true,
            ..self
        }
    }

    /// Returns where the files are.
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.file("")
    }

    /// Runs it in a process, to its end.
    pub(super) fn run(&self, fate: Option<Fate>) -> ExitStatus {
        self.command(fate).stdout(Stdio::null()).status().unwrap()
    }

    /// Starts a process.
    pub(super) fn start(&self, fates: impl IntoIterator<Item = Fate>) -> Process {
        let mut child = self.command(fates).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process {
            folder: self.folder(),
            child,
            lines,
        }
    }

    fn command(&self, fates: impl IntoIterator<Item = Fate>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "journal::program::a_process_that_goes_on_with_a_run",
        ]);
        let fates = Vec::from_iter(fates.into_iter().map(|fate| fate.to_string()));
        command
            .env(FOLDER, self.folder())
            .env(RUN_ID, &self.run)
            .env(FATES, fates.join("\n"));
        if let Some(url) = &self.database {
            command.env(DATABASE, url);
        }
        if self.is_in_session {
            command.env(IN_SESSION, "1");
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A process that works on a run.
pub(super) struct Process {
    folder: PathBuf,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Returns what it reports next.
    pub(super) fn report(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let report = lines.find_map(|line| line.strip_prefix('#').map(str::to_owned));
        report.expect("the process ends with a report")
    }

    /// Lets it go on that has reported that it stops.
    pub(super) fn go_on(&mut self) {
        fate::go_on(&self.folder, self.child.id());
    }

    /// Lets it go on, and returns what it reports in the end.
    pub(super) fn ends(&mut self) -> String {
        self.go_on();
        self.report()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself, unless the test has failed.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
