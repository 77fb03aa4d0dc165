//! Reads which file of a crate names what of which other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// One file's use of another; both are paths from the repository's root.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    names: BTreeSet<String>,
}

impl Arrow {
    pub(crate) fn is(&self, (from, to): (&str, &str)) -> bool {
        self.from == from && self.to == to
    }
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Vec::from_iter(self.names.iter().map(String::as_str)).join(", ");
        write!(f, "{} -> {}: {names}", self.from, self.to)
    }
}

/// Paths in code are lists of names.
type Names = Vec<String>;

#[derive(Debug, Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// The items that are defined here.
    items: BTreeSet<String>,
    /// The types and traits among them, and whether each is `pub` without restriction.
    types: BTreeMap<String, bool>,
    imports: Vec<Import>,
    /// Paths of two names and more.
    paths: BTreeSet<Names>,
    /// All other words of the code.
    words: BTreeSet<String>,
    impls: Vec<Impl>,
}

/// An `impl` block.
#[derive(Debug, Default)]
struct Impl {
    type_name: String,
    is_of_trait: bool,
    /// The functions that it defines.
    functions: BTreeSet<String>,
    /// The functions that it names as `self.name(..)` or `Self::name`.
    calls: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Import {
    path: Names,
    /// The name that it has here; `*` for all names.
    name: String,
    is_public: bool,
}

/// The modules of a crate by their paths.
#[derive(Debug)]
pub(crate) struct Source {
    root: PathBuf,
    modules: BTreeMap<Names, Module>,
}

/// Where a path leads: to a module, or to what is defined in one.
enum Place {
    Module(Names),
    Item(Names),
}

impl Source {
    /// Reads the crate whose `lib.rs` is in `folder` of the repository.
    pub(crate) fn read(repository: &Path, folder: &str) -> Self {
        let mut source = Self {
            root: repository.to_owned(),
            modules: BTreeMap::new(),
        };
        source.read_file(&[], folder, format!("{folder}/lib.rs"));
        source
    }

    /// Returns what the files take from one another. A file does not take what it hands on from its
    /// own folder, and what is taken from there is taken from the file that defines it; across
    /// folders at the root, handing on counts as well.
    pub(crate) fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = BTreeMap::<_, BTreeSet<String>>::new();
        for (at, module) in &self.modules {
            let mut add = |to: &str, name: &str| {
                if module.file != to {
                    let ends = (module.file.clone(), to.to_owned());
                    arrows.entry(ends).or_default().insert(name.to_owned());
                }
            };
            let imported = module
                .imports
                .iter()
                .map(|import| (&import.path, Some(import)));
            for (path, import) in imported.chain(module.paths.iter().map(|path| (path, None))) {
                let name = path.last().map_or("", String::as_str);
                let there = match self.find(at, path, &mut Vec::new()) {
                    Some(Place::Item(there)) => there,
                    Some(Place::Module(there))
                        if import.is_some_and(|import| import.name == "*") =>
                    {
                        there
                    }
                    _ => continue,
                };
                let file = &self.modules[&there].file;
                let folder = module.file.strip_suffix("mod.rs");
                let is_handed_on = folder.is_some_and(|folder| file.starts_with(folder))
                    && import.is_some_and(|import| {
                        import.is_public && !module.words.contains(&import.name)
                    });
                if !is_handed_on {
                    add(file, name);
                }
                // The folder that is named, where it only hands on what is defined in another.
                if let Some(room) = self.room(at, path)
                    && room != there.get(..1).unwrap_or_default()
                    && room != at.get(..1).unwrap_or_default()
                {
                    add(&self.modules[room].file, name);
                }
            }
        }
        // No import shows a call of a method whose `impl` stands in another file than its type.
        let methods = self.methods();
        for (at, module) in &self.modules {
            for block in &module.impls {
                let Some(there) = self.home(at, block) else {
                    continue;
                };
                for call in &block.calls {
                    let method = (there.clone(), block.type_name.clone(), call.clone());
                    let Some(files) = methods.get(&method) else {
                        continue;
                    };
                    if files.contains(&module.file) {
                        continue;
                    }
                    for file in files {
                        let ends = (module.file.clone(), file.clone());
                        arrows.entry(ends).or_default().insert(call.clone());
                    }
                }
            }
        }
        arrows
            .into_iter()
            .map(|((from, to), names)| Arrow { from, to, names })
            .collect()
    }

    /// Returns the files that name or import one of these.
    pub(crate) fn files_naming(&self, names: &[&str]) -> BTreeSet<&str> {
        let mut files = BTreeSet::new();
        for module in self.modules.values() {
            let imported = module.imports.iter().map(|import| &import.name);
            let mut words = imported.chain(&module.words);
            if words.any(|word| names.contains(&word.as_str())) {
                files.insert(module.file.as_str());
            }
        }
        files
    }

    /// Returns the names of the types and traits that are `pub` without restriction.
    pub(crate) fn public_types(&self) -> BTreeSet<String> {
        let types = self.modules.values().flat_map(|module| &module.types);
        let public = types.filter(|(_, is_public)| **is_public);
        public.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names that several types of the crate have, unless all of these are public, with
    /// the files that define them.
    pub(crate) fn shared_names(&self) -> Vec<String> {
        let mut types = BTreeMap::<_, Vec<_>>::new();
        for module in self.modules.values() {
            for (name, is_public) in &module.types {
                types
                    .entry(name)
                    .or_default()
                    .push((module.file.as_str(), *is_public));
            }
        }
        types.retain(|_, types| types.len() > 1 && types.iter().any(|(_, is_public)| !is_public));
        let mut shared = Vec::new();
        for (name, types) in types {
            let files = Vec::from_iter(types.iter().map(|(file, _)| *file)).join(", ");
            shared.push(format!("{name}: {files}"));
        }
        shared
    }

    /// Returns the files that define the methods of the crate's types, by the module and the name
    /// of the type and the name of the method. Only methods that no trait has.
    fn methods(&self) -> BTreeMap<(Names, String, String), BTreeSet<String>> {
        let mut methods = BTreeMap::<_, BTreeSet<String>>::new();
        for (at, module) in &self.modules {
            for block in module.impls.iter().filter(|block| !block.is_of_trait) {
                let Some(there) = self.home(at, block) else {
                    continue;
                };
                for function in &block.functions {
                    let method = (there.clone(), block.type_name.clone(), function.clone());
                    methods
                        .entry(method)
                        .or_default()
                        .insert(module.file.clone());
                }
            }
        }
        methods
    }

    /// Returns the module that defines the type of an `impl` in the module `at`.
    fn home(&self, at: &[String], block: &Impl) -> Option<Names> {
        let path = [block.type_name.clone()];
        match self.find(at, &path, &mut Vec::new()) {
            Some(Place::Item(there)) => Some(there),
            _ => None,
        }
    }

    /// Returns what the files take through the `mod.rs` of a folder around them, although another
    /// file defines it.
    pub(crate) fn detours(&self) -> Vec<String> {
        let mut detours = Vec::new();
        for (at, module) in &self.modules {
            let imported = module.imports.iter().map(|import| &import.path);
            for path in imported.chain(&module.paths) {
                let Some(folder) = self.folder_around(at, path) else {
                    continue;
                };
                let Some(Place::Item(there)) = self.find(at, path, &mut Vec::new()) else {
                    continue;
                };
                if self.modules[&there].file != folder.file {
                    let path = path.join("::");
                    detours.push(format!("{} -> {}: {path}", module.file, folder.file));
                }
            }
        }
        detours
    }

    /// The module of a folder around this one, but not the root, in which a path as it is written
    /// looks for its last names.
    fn folder_around(&self, at: &[String], path: &[String]) -> Option<&Module> {
        let (mut place, names) = base(at, path);
        for name in names {
            place.push(name.clone());
            if !self.modules.contains_key(&place) {
                place.pop();
                break;
            }
        }
        let is_around = !place.is_empty() && at.len() > place.len() && at.starts_with(&place);
        let folder = is_around.then(|| &self.modules[&place])?;
        (folder.file != self.modules[at].file).then_some(folder)
    }

    /// The module at the root, or the root, that a path goes through as it is written.
    fn room(&self, at: &[String], path: &[String]) -> Option<&[String]> {
        if !["crate", "super"].contains(&path.first()?.as_str()) {
            return None;
        }
        let (mut place, names) = base(at, path);
        place.extend(names.first().cloned());
        let room = self
            .modules
            .get_key_value(&place[..1])
            .or(self.modules.get_key_value(&[][..]));
        room.map(|(room, _)| room.as_slice())
    }

    fn find(
        &self,
        at: &[String],
        path: &[String],
        seen: &mut Vec<(Names, Names)>,
    ) -> Option<Place> {
        let asked = (at.to_vec(), path.to_vec());
        if seen.contains(&asked) {
            return None;
        }
        seen.push(asked);
        let (mut place, mut names) = base(at, path);
        let mut is_here = names.len() < path.len();
        while let [name, rest @ ..] = names {
            let module = &self.modules[&place];
            let child = || {
                module
                    .children
                    .contains(name)
                    .then(|| [&place[..], std::slice::from_ref(name)].concat())
            };
            match (child(), rest) {
                // A function may have the name of the module it is in.
                (Some(child), []) => {
                    let item = self.find_item(&place, name, &[], seen);
                    return item.or(Some(Place::Module(child)));
                }
                (Some(child), _) => place = child,
                (None, _) => {
                    let item = self.find_item(&place, name, rest, seen);
                    // Definitions inside a macro are not seen.
                    return item.or_else(|| is_here.then_some(Place::Item(place)));
                }
            }
            is_here = true;
            names = rest;
        }
        Some(Place::Module(place))
    }

    fn find_item(
        &self,
        at: &Names,
        name: &str,
        rest: &[String],
        seen: &mut Vec<(Names, Names)>,
    ) -> Option<Place> {
        let module = &self.modules[at];
        if module.items.contains(name) {
            return Some(Place::Item(at.clone()));
        }
        for import in module.imports.iter().filter(|import| import.name == name) {
            let path = [&import.path[..], rest].concat();
            if let Some(place) = self.find(at, &path, seen) {
                return Some(place);
            }
        }
        for import in module.imports.iter().filter(|import| import.name == "*") {
            let Some(Place::Module(there)) = self.find(at, &import.path, seen) else {
                continue;
            };
            let path = [&[name.to_owned()][..], rest].concat();
            if self.modules[&there].children.contains(name) {
                return self.find(&there, &path, seen);
            }
            if let Some(place) = self.find_item(&there, name, rest, seen) {
                return Some(place);
            }
        }
        None
    }

    fn read_file(&mut self, at: &[String], folder: &str, file: String) {
        let text = fs::read_to_string(self.root.join(&file)).unwrap();
        let tokens = text
            .parse()
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        self.read_module(at, folder, file, tokens);
    }

    fn read_module(&mut self, at: &[String], folder: &str, file: String, tokens: TokenStream) {
        let mut module = Module {
            file: file.clone(),
            ..Module::default()
        };
        let mut inside = Vec::new();
        read_tokens(&mut module, &mut inside, tokens, true);
        self.modules.insert(at.to_vec(), module);
        for (name, tokens) in inside {
            let at = [at, &[name]].concat();
            match tokens {
                Some(tokens) => self.read_module(&at, folder, file.clone(), tokens),
                None => {
                    let path = format!("{folder}/{}", at.join("/"));
                    let mut files = [format!("{path}.rs"), format!("{path}/mod.rs")].into_iter();
                    let file = files.find(|file| self.root.join(file).exists());
                    let file = file.unwrap_or_else(|| panic!("no file for `{path}`"));
                    self.read_file(&at, folder, file);
                }
            }
        }
    }
}

/// Returns the module in which a path begins, and the names that follow.
fn base<'p>(at: &[String], path: &'p [String]) -> (Names, &'p [String]) {
    let mut place = at.to_vec();
    let mut names = path;
    while let [name, rest @ ..] = names {
        match name.as_str() {
            "crate" => place.clear(),
            "self" => {}
            "super" => drop(place.pop()),
            _ => break,
        }
        names = rest;
    }
    (place, names)
}

/// Writes down what these tokens define, import and name.
fn read_tokens(
    module: &mut Module,
    inside: &mut Vec<(String, Option<TokenStream>)>,
    tokens: TokenStream,
    is_top: bool,
) {
    let tokens = Vec::from_iter(tokens);
    let mut index = 0;
    let mut is_public = false;
    let mut is_test = false;
    while let Some(token) = tokens.get(index) {
        index += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let inner = usize::from(is_punct(tokens.get(index), '!'));
                if let Some(TokenTree::Group(attribute)) = tokens.get(index + inner) {
                    let text = attribute.stream().to_string();
                    is_test |= text == "cfg (test)" || text == "cfg(test)";
                    if !text.starts_with("doc") {
                        read_tokens(module, inside, attribute.stream(), false);
                    }
                    index += inner + 1;
                }
            }
            TokenTree::Group(group) => {
                // A macro's input may define something; its own definition does not.
                let of_macro = is_punct(index.checked_sub(2).and_then(|at| tokens.get(at)), '!');
                read_tokens(module, inside, group.stream(), is_top && of_macro);
                is_public &= group.delimiter() == Delimiter::Parenthesis;
                is_test = false;
            }
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let next = ident(tokens.get(index));
                match (word.as_str(), next) {
                    ("pub", _) => {
                        is_public = true;
                        continue;
                    }
                    ("use", _) if !is_punct(tokens.get(index), '<') => {
                        let end = (index..tokens.len())
                            .find(|at| is_punct(tokens.get(*at), ';'))
                            .unwrap_or(tokens.len());
                        imports(&mut module.imports, &[], &tokens[index..end], is_public);
                        index = end;
                    }
                    ("mod", Some(name)) if is_top => {
                        index += 1;
                        let body = match tokens.get(index) {
                            Some(TokenTree::Group(body)) => Some(Group::stream(body)),
                            _ => None,
                        };
                        index += 1;
                        if !is_test {
                            module.children.insert(name.clone());
                            inside.push((name, body));
                        }
                    }
                    (
                        "const" | "enum" | "fn" | "static" | "struct" | "trait" | "type" | "union",
                        Some(name),
                    ) if is_top => {
                        if ["enum", "struct", "trait", "union"].contains(&word.as_str()) {
                            let before = index.checked_sub(2).and_then(|at| tokens.get(at));
                            let is_public = ident(before).is_some_and(|before| before == "pub");
                            module.types.insert(name.clone(), is_public);
                        }
                        module.items.insert(name);
                    }
                    ("impl", _) if is_top && begins_item(&tokens[..index - 1]) => {
                        module.impls.extend(read_impl(&tokens[index..]));
                    }
                    ("macro_rules", None) if is_punct(tokens.get(index), '!') => {
                        module.items.extend(ident(tokens.get(index + 1)));
                    }
                    _ => {
                        let mut path = vec![word];
                        while is_path(&tokens, index) {
                            let Some(name) = ident(tokens.get(index + 2)) else {
                                break;
                            };
                            path.push(name);
                            index += 3;
                        }
                        if path.len() > 1 {
                            module.words.insert(path[0].clone());
                            module.paths.insert(path);
                        } else {
                            module.words.extend(path);
                        }
                    }
                }
                is_public = false;
                is_test = false;
            }
            // The rest of a path that began with a type.
            TokenTree::Punct(_) if is_path(&tokens, index - 1) => {
                index += 1 + usize::from(ident(tokens.get(index + 1)).is_some());
                while is_path(&tokens, index) && ident(tokens.get(index + 2)).is_some() {
                    index += 3;
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns whether an item may begin after these tokens.
fn begins_item(before: &[TokenTree]) -> bool {
    match before.last() {
        None => true,
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
        Some(TokenTree::Ident(_) | TokenTree::Literal(_)) => false,
    }
}

/// Reads an `impl` block from the tokens after that word.
fn read_impl(tokens: &[TokenTree]) -> Option<Impl> {
    let mut block = Impl::default();
    // How many `<` are open.
    let mut depth = 0_u32;
    let mut is_in_bounds = false;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace && depth == 0 => {
                read_functions(&mut block, body.stream());
                return Some(block);
            }
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => {
                let is_arrow = is_punct(index.checked_sub(1).and_then(|at| tokens.get(at)), '-');
                depth = depth.saturating_sub(u32::from(!is_arrow));
            }
            TokenTree::Ident(word) if depth == 0 && !is_in_bounds => match &*word.to_string() {
                "where" => is_in_bounds = true,
                "for" => block.is_of_trait = true,
                // The last name of the path is the type's.
                name => block.type_name = name.to_owned(),
            },
            _ => {}
        }
    }
    None
}

/// Writes down which functions the body of an `impl` block defines and calls.
fn read_functions(block: &mut Impl, body: TokenStream) {
    let tokens = Vec::from_iter(body);
    for (index, token) in tokens.iter().enumerate() {
        let name = ident(tokens.get(index + 1));
        if matches!(token, TokenTree::Ident(word) if word == "fn") {
            block.functions.extend(name);
        }
    }
    read_calls(block, &tokens);
}

fn read_calls(block: &mut Impl, tokens: &[TokenTree]) {
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => read_calls(block, &Vec::from_iter(group.stream())),
            TokenTree::Ident(word) if word == "self" && is_punct(tokens.get(index + 1), '.') => {
                // A field and a method may share a name: only what is followed by arguments is a
                // call.
                let arguments = tokens.get(index + 3);
                let is_call = matches!(arguments, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
                    || is_path(tokens, index + 3);
                block
                    .calls
                    .extend(ident(tokens.get(index + 2)).filter(|_| is_call));
            }
            TokenTree::Ident(word) if word == "Self" && is_path(tokens, index + 1) => {
                block.calls.extend(ident(tokens.get(index + 3)));
            }
            _ => {}
        }
    }
}

/// Adds the imports of a `use` of these tokens.
fn imports(into: &mut Vec<Import>, before: &[String], tokens: &[TokenTree], is_public: bool) {
    let mut add = |path: &Names, name: &str| {
        into.push(Import {
            path: path.clone(),
            name: name.to_owned(),
            is_public,
        });
    };
    let mut path = before.to_vec();
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "as" => {
                let name = ident(tokens.next()).unwrap_or_default();
                return add(&path, &name);
            }
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => return add(&path, "*"),
            TokenTree::Group(group) => {
                let inside = Vec::from_iter(group.stream());
                for one in inside.split(|token| is_punct(Some(token), ',')) {
                    if !one.is_empty() {
                        imports(into, &path, one, is_public);
                    }
                }
                return;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    add(&path, &name);
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Returns whether `::` begins here.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let is_joint =
        |punct: &proc_macro2::Punct| punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if is_joint(punct))
        && is_punct(tokens.get(at + 1), ':')
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}
