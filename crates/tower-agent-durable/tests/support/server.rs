//! A PostgreSQL server of a test's own, which listens on a socket in a folder alone.

use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tower_agent_durable::Postgres;

use crate::support::folder::Folder;

pub(crate) struct Server {
    folder: Folder,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    settings: &'static [&'static str],
    child: Option<Child>,
    pooler: Option<Child>,
}

/// The port of the pooler, which is part of its socket's name.
const POOLER: u16 = 6432;

// The loss of a power cut is not tested. That of a killed server is: by default it confirms a
// commit before it is made.
const SETTINGS: &[&str] = &["fsync=off", "synchronous_commit=off"];

/// Returns where the programs are, if they are installed; otherwise prints so, or fails if they are
/// required.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let found = versions.map(|version| version.path().join("bin"));
    let mut found: Vec<_> = found.filter(|bin| bin.join("initdb").exists()).collect();
    found.sort();
    let wanted = PathBuf::from("/usr/lib/postgresql/*/bin/initdb");
    let wanted = found.last().map_or(wanted, |bin| bin.join("initdb"));
    test_support::process::is_installed("PostgreSQL", &wanted, ".ci/servers")
        .then(|| found.pop())
        .flatten()
}

/// Returns another user than root, as whom the server refuses to run.
fn user() -> Option<(u32, u32)> {
    let id = |flag: &str, name: Option<&str>| {
        let output = Command::new("id").arg(flag).args(name).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse::<u32>()
            .unwrap()
    };
    let name = Some("postgres");
    (id("-u", None) == 0).then(|| (id("-u", name), id("-g", name)))
}

impl Server {
    /// Starts a server, if PostgreSQL is installed.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::start_with(name, SETTINGS)
    }

    /// Starts a server with these settings, if PostgreSQL is installed.
    pub(crate) fn start_with(name: &str, settings: &'static [&'static str]) -> Option<Self> {
        let programs = programs()?;
        let (folder, user) = (Folder::new(name), user());
        if let Some((uid, gid)) = user {
            chown(folder.file(""), Some(uid), Some(gid)).unwrap();
        }
        let mut server = Self {
            folder,
            programs,
            user,
            settings,
            child: None,
            pooler: None,
        };
        let data = server.folder.file("data");
        let mut initdb = server.command("initdb");
        initdb.args(["--auth", "trust", "--username", "postgres", "--no-sync"]);
        initdb
            .args(["--encoding", "UTF8", "--locale", "C.UTF-8", "--pgdata"])
            .arg(data);
        let made = initdb.stdout(Stdio::null()).output().unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        server.resume();
        Some(server)
    }

    /// Starts a server behind PgBouncer, if both are installed. Its addresses are the pooler's,
    /// which has two connections for each database and gives a client one for each transaction.
    pub(crate) fn start_pooled(name: &str) -> Option<Self> {
        Self::start_pooled_by(name, "transaction")
    }

    /// Starts one whose pooler gives a client a connection for as long as this mode says.
    pub(crate) fn start_pooled_by(name: &str, mode: &str) -> Option<Self> {
        let program = PathBuf::from("/usr/sbin/pgbouncer");
        if !test_support::process::is_installed("PgBouncer", &program, ".ci/servers") {
            return None;
        }
        let mut server = Self::start(name)?;
        let folder = server.folder.file("");
        let (users, settings) = (server.folder.file("users"), server.folder.file("pooler"));
        std::fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let of_pooler = format!(
            "[databases]\n\
             * = host={folder}\n\
             [pgbouncer]\n\
             pool_mode = {mode}\n\
             default_pool_size = 2\n\
             auth_type = trust\n\
             auth_file = {users}\n\
             unix_socket_dir = {folder}\n\
             listen_port = {POOLER}\n",
            folder = folder.display(),
            users = users.display(),
        );
        std::fs::write(&settings, of_pooler).unwrap();
        let mut pooler = server.command("/usr/sbin/pgbouncer");
        let log = std::fs::File::create(server.folder.file("pooler.log")).unwrap();
        let mut child = pooler.arg(settings).stderr(log).spawn().unwrap();
        let socket = server.folder.file(&format!(".s.PGSQL.{POOLER}"));
        while UnixStream::connect(&socket).is_err() {
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read_to_string(server.folder.file("pooler.log"));
                panic!("{}", log.unwrap());
            }
            std::thread::yield_now();
        }
        server.pooler = Some(child);
        Some(server)
    }

    fn command(&self, program: &str) -> Command {
        // An absolute path is that of a program which is elsewhere.
        let mut command = Command::new(self.programs.join(program));
        command.current_dir("/").stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts the server again, and waits until it answers.
    pub(crate) fn resume(&mut self) {
        let mut postgres = self.command("postgres");
        postgres
            .arg("-D")
            .arg(self.folder.file("data"))
            .arg("-k")
            .arg(self.folder.file(""));
        postgres.args(["-c", "listen_addresses=", "-c", "max_connections=200"]);
        for setting in self.settings {
            postgres.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.folder.file("log")).unwrap();
        let mut child = postgres.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let is_ready = || {
            let mut ready = self.command("pg_isready");
            ready
                .arg("-h")
                .arg(self.folder.file(""))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            ready.status().unwrap().success()
        };
        while child.try_wait().unwrap().is_none() {
            if is_ready() {
                self.child = Some(child);
                return;
            }
            std::thread::yield_now();
        }
        panic!(
            "{}",
            std::fs::read_to_string(self.folder.file("log")).unwrap()
        );
    }

    /// Stops the server: connections are cut, what was committed stays.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let stopped = Command::new("kill")
            .arg("-INT")
            .arg(child.id().to_string())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }

    /// Kills all of its processes at once.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let postmaster = child.id().to_string();
        let signal = |name: &str, process: &str| {
            // One that has ended meanwhile cannot be killed.
            let _ = Command::new("kill")
                .args([name, process])
                .stderr(Stdio::null())
                .status();
        };
        signal("-STOP", &postmaster);
        let listed = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &postmaster])
            .output()
            .unwrap();
        let processes = String::from_utf8(listed.stdout).unwrap();
        let processes: Vec<_> = processes.split_whitespace().collect();
        signal("-KILL", &postmaster);
        processes
            .iter()
            .for_each(|process| signal("-KILL", process));
        child.wait().unwrap();
        let is_there = |process: &&str| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while processes.iter().any(is_there) {
            std::thread::yield_now();
        }
    }

    /// Returns the socket on which it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.file(".s.PGSQL.5432")
    }

    pub(crate) async fn connect(&self) -> Postgres {
        self.connect_to("postgres").await
    }

    /// Creates a database.
    pub(crate) fn create(&self, name: &str) {
        let mut create = self.command("createdb");
        create
            .arg("-h")
            .arg(self.folder.file(""))
            .args(["--username", "postgres", name]);
        assert!(
            create.status().unwrap().success(),
            "the database `{name}` was not created"
        );
    }

    /// Returns what a statement returns.
    pub(crate) fn query(&self, sql: &str) -> String {
        self.query_in("postgres", sql)
    }

    /// Returns what a statement returns in a database.
    pub(crate) fn query_in(&self, database: &str, sql: &str) -> String {
        let mut psql = self.psql();
        psql.args(["-d", database, "-c", sql]);
        let output = psql.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Locks a table until the session's input ends.
    pub(crate) fn lock(&self, table: &str) -> Child {
        let mut session = self
            .psql()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lock = format!("BEGIN; LOCK TABLE {table};\n");
        session
            .stdin
            .as_mut()
            .unwrap()
            .write_all(lock.as_bytes())
            .unwrap();
        let is_locked = format!(
            "SELECT count(*) FROM pg_locks \
             WHERE relation = '{table}'::regclass AND mode = 'AccessExclusiveLock' AND granted"
        );
        while self.query(&is_locked) != "1" {
            std::thread::yield_now();
        }
        session
    }

    fn psql(&self) -> Command {
        let mut psql = self.command("psql");
        psql.arg("-h")
            .arg(self.folder.file(""))
            .args(["-U", "postgres", "-At"]);
        psql
    }

    pub(crate) async fn connect_to(&self, name: &str) -> Postgres {
        Postgres::connect(&self.url(name)).await.unwrap()
    }

    /// Returns the address of a database, for another process.
    pub(crate) fn url(&self, name: &str) -> String {
        let port = self.pooler.as_ref().map_or(5432, |_| POOLER);
        format!(
            "postgres://postgres@localhost:{port}/{name}?host={}",
            self.folder.file("").display()
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut pooler) = self.pooler.take() {
            let _ = pooler.kill();
            let _ = pooler.wait();
        }
        self.stop();
        let _ = std::io::stderr().flush();
    }
}
