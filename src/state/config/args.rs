//! The command line: `kedis-server [FILE | -] [--parameter value …]`.
//!
//! Flags are directives: the words after a flag, up to the next one, are its arguments. After
//! the file the first directive may begin without dashes. The word right after a flag is always
//! an argument, even if it starts with `--`, so that a password may. `--save` alone means
//! `--save ""`. `--load-rdb FILE`, `--accept-data-loss`, `--repair`, `--check-config` and
//! `--print-config` are not parameters: they apply to this start only.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::Config;
use super::file::{ConfigError, Loader, Origin, Places, Reason, read_bounded, unknown};
use super::lex::split;
use super::params::Param;
use super::shown::without_secrets;
use super::value::ValueError;

/// What the command line asks for.
#[derive(Debug)]
pub enum Startup {
    /// Run with this configuration.
    Run(Box<Config>, Given),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
}

/// Other properties of a start; paths are absolute.
#[derive(Debug, Default)]
pub struct Given {
    /// The file that the configuration came from.
    pub file: Option<PathBuf>,
    /// The RDB file or append-only log whose data is to be served.
    pub load_rdb: Option<PathBuf>,
    /// Whether to start although acknowledged writes are lost.
    pub accept_data_loss: bool,
    /// Whether to repair the database rather than serve it.
    pub repair: bool,
    /// Whether to check the configuration rather than run.
    pub check_config: bool,
    /// Whether to print the configuration rather than run.
    pub print_config: bool,
    /// Where parameters were set.
    pub places: Places,
}

/// A flag and its arguments.
struct Directive {
    name: Vec<u8>,
    arguments: Vec<Vec<u8>>,
}

/// The parsed command line, before it is applied.
enum Parsed {
    Version,
    Help,
    Run(Option<Vec<u8>>, Vec<Directive>),
}

impl Config {
    /// Reads the arguments that follow the program's name, and the files they name.
    pub fn from_args<I>(args: I) -> Result<Startup, ConfigError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self::from_args_and_stdin(args, std::io::stdin())
    }

    /// As [`Config::from_args`], with the standard input that is read if the file is `-`.
    pub(super) fn from_args_and_stdin<I>(args: I, stdin: impl Read) -> Result<Startup, ConfigError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let args = args.into_iter().map(|arg| arg.into().into_vec()).collect();
        let (file, directives) = match parse(args)? {
            Parsed::Version => return Ok(Startup::Version),
            Parsed::Help => return Ok(Startup::Help),
            Parsed::Run(file, directives) => (file, directives),
        };
        let mut config = Config::default();
        let mut loader = Loader::new(&mut config);
        let path = match file {
            None => None,
            Some(name) if name == b"-" => {
                let text = read_bounded(stdin).map_err(|error| ConfigError::Unreadable {
                    path: "-".into(),
                    error,
                })?;
                loader.text(&text, &Origin::Stdin)?;
                None
            }
            Some(name) => {
                // A directive without its dashes, perhaps.
                let named = String::from_utf8_lossy(&name);
                let shown = Some(without_secrets(&named)).filter(|shown| *shown != named);
                let path = PathBuf::from(OsString::from_vec(name.clone()));
                let path = std::path::absolute(&path).unwrap_or(path);
                loader.file(&path).map_err(|error| match (error, shown) {
                    (ConfigError::Unreadable { error, .. }, Some(shown)) => {
                        let path = shown.into();
                        ConfigError::Unreadable { path, error }
                    }
                    (error, _) => error,
                })?;
                Some(path)
            }
        };
        let mut given = Given {
            file: path,
            ..Given::default()
        };
        for directive in directives {
            if let Some(file) = rdb_file(&directive)? {
                given.load_rdb = Some(std::path::absolute(&file).unwrap_or(file));
                continue;
            }
            if let Some(flag) = given.flag(&directive.name) {
                if !directive.arguments.is_empty() {
                    return Err(stray(&directive.name, Reason::StrayArgument));
                }
                *flag = true;
                continue;
            }
            loader.argument(&directive.name, &directive.arguments)?;
        }
        given.places = loader.into_places();
        Ok(Startup::Run(Box::new(config), given))
    }
}

impl Given {
    /// The field of a flag that has no arguments and is not a parameter.
    fn flag(&mut self, name: &[u8]) -> Option<&mut bool> {
        match name.to_ascii_lowercase().as_slice() {
            b"accept-data-loss" => Some(&mut self.accept_data_loss),
            b"repair" => Some(&mut self.repair),
            b"check-config" => Some(&mut self.check_config),
            b"print-config" => Some(&mut self.print_config),
            _ => None,
        }
    }
}

/// The file of `--load-rdb`.
fn rdb_file(directive: &Directive) -> Result<Option<PathBuf>, ConfigError> {
    if !directive.name.eq_ignore_ascii_case(b"load-rdb") {
        return Ok(None);
    }
    match directive.arguments.as_slice() {
        [file] if !file.is_empty() => Ok(Some(PathBuf::from(OsString::from_vec(file.clone())))),
        _ => Err(stray(b"--load-rdb", Reason::RdbFile)),
    }
}

fn parse(args: Vec<Vec<u8>>) -> Result<Parsed, ConfigError> {
    let mut args = args.into_iter().peekable();
    let file = args.next_if(|arg| arg == b"-" || !arg.starts_with(b"-"));
    let mut directives: Vec<Directive> = Vec::new();
    // Whether the last word was a flag without a value, which takes the next word as its
    // argument.
    let mut takes_next = false;
    while let Some(arg) = args.next() {
        match (takes_next, arg.as_slice()) {
            (false, b"-v" | b"--version") => return Ok(Parsed::Version),
            (false, b"-h" | b"--help") => return Ok(Parsed::Help),
            (false, [b'-', b'-', flag @ ..]) => {
                let directive = flag_words(flag)?;
                let is_bare = Given::default().flag(&directive.name).is_some();
                takes_next = directive.arguments.is_empty() && !is_bare;
                let next_is_flag = args.peek().is_none_or(|next| next.starts_with(b"--"));
                let bare_save = takes_next && directive.name.eq_ignore_ascii_case(b"save");
                directives.push(directive);
                if bare_save && next_is_flag {
                    takes_next = false;
                    if let Some(last) = directives.last_mut() {
                        last.arguments.push(Vec::new());
                    }
                }
            }
            (true, [b'-', b'-', flag @ ..]) if Given::default().flag(flag).is_some() => {
                // A value may begin with dashes, but hardly so.
                let name = directives.pop().map(|last| last.name);
                let reason = Reason::Value(ValueError::Arity);
                return Err(stray(&name.unwrap_or_default(), reason));
            }
            _ => {
                takes_next = false;
                match directives.last_mut() {
                    Some(last) => last.arguments.push(arg),
                    // After the file a directive may begin without dashes.
                    None if Param::find(&arg).is_some() => directives.push(Directive {
                        name: arg,
                        arguments: Vec::new(),
                    }),
                    None => return Err(stray(&arg, Reason::StrayArgument)),
                }
            }
        }
    }
    Ok(Parsed::Run(file, directives))
}

/// A flag may contain its arguments: `"--port 6380"`.
fn flag_words(flag: &[u8]) -> Result<Directive, ConfigError> {
    let mut words = split(flag).map_err(|error| stray(flag, error.into()))?;
    if words.is_empty() {
        return Err(stray(b"--", unknown(b"")));
    }
    let arguments = words.split_off(1);
    Ok(Directive {
        name: words.pop().unwrap_or_default(),
        arguments,
    })
}

fn stray(arg: &[u8], reason: Reason) -> ConfigError {
    ConfigError::Directive {
        origin: Origin::Args,
        text: without_secrets(&String::from_utf8_lossy(arg)),
        reason,
    }
}
