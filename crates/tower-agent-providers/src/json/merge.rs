use serde_json::Value;

use tower_agent::error::{Error, ErrorKind, Result};

/// Returns the value of our field, which is that of an object, with the caller's value merged into
/// it; `None` if that removes it.
pub(super) fn merged(
    field: &[u8],
    name: &str,
    theirs: &Value,
    guarded: &[&str],
) -> Result<Option<Value>> {
    let mut field: Value = serde_json::from_slice(field)?;
    let mut ours = field[name].take();
    if theirs.is_null() {
        check(&ours, name, guarded)?;
        return Ok(None);
    }
    merge(&mut ours, theirs, name, guarded)?;
    Ok(Some(ours))
}

fn merge(ours: &mut Value, theirs: &Value, path: &str, guarded: &[&str]) -> Result<()> {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            for item in theirs {
                if !ours.contains(item) {
                    ours.push(item.clone());
                }
            }
        }
        (Value::Object(ours), Value::Object(theirs)) if !guarded.contains(&path) => {
            for (name, value) in theirs {
                let path = format!("{path}.{name}");
                match ours.get_mut(name) {
                    Some(our) if value.is_null() => {
                        check(our, &path, guarded)?;
                        ours.remove(name);
                    }
                    Some(our) => merge(our, value, &path, guarded)?,
                    None if value.is_null() => {}
                    None => {
                        ours.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (ours, theirs) if *ours == *theirs => {}
        (ours, theirs) => {
            check(ours, path, guarded)?;
            *ours = theirs.clone();
        }
    }
    Ok(())
}

/// Fails if a field is guarded, or has a guarded one in it.
fn check(ours: &Value, path: &str, guarded: &[&str]) -> Result<()> {
    let is_lost = |guarded: &&&str| {
        let Some(inside) = guarded.strip_prefix(path) else {
            return false;
        };
        inside.is_empty()
            || inside.starts_with('.') && ours.pointer(&inside.replace('.', "/")).is_some()
    };
    match guarded.iter().find(is_lost) {
        None => Ok(()),
        Some(lost) => {
            let message = format!(
                "`{path}` among the extra settings would remove `{lost}`, which the agent has set: \
                 leave it out there, or set nothing else for it"
            );
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}
