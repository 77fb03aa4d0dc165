//! The steps of a call below the agent that works in the innermost tool call.

use tower_agent::context::RunContext;

/// Returns the name of the variable for the result of a tool call: the same whenever this call is
/// made.
pub(super) fn variable_name(context: &RunContext) -> String {
    let mut name = String::from("@");
    for character in own_steps(&context.step_path(), true).join("/").chars() {
        match character {
            '%' => name.push_str("%25"),
            plain if is_of_name(plain) => name.push(plain),
            other => name.push_str(&format!("%{:X}", u32::from(other))),
        }
    }
    name
}

/// Returns whether a character may stand in the name of a variable, after the `@`.
pub(super) fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | '%')
}

/// Returns the steps of a path below the first agent that works in the innermost tool call around
/// the path's end, or below the outermost agent. The path ends in a tool call, or in an agent.
pub(super) fn own_steps(path: &str, ends_in_call: bool) -> Vec<&str> {
    let steps: Vec<_> = path.split('/').collect();
    let end = steps.len() - usize::from(ends_in_call);
    let call = steps[..end].iter().rposition(|step| is_call(step));
    let first_agent = call.map_or(0, |call| call + 1);
    steps[(first_agent + 1).min(steps.len())..].to_vec()
}

/// Returns whether a step of a path is a tool call, such as `m3.1`.
fn is_call(step: &str) -> bool {
    step.rsplit_once('.').is_some_and(|(message, index)| {
        !message.is_empty() && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_steps_begin_below_the_agent_in_the_call() {
        let own = |path, ends_in_call| own_steps(path, ends_in_call).join("/");
        assert_eq!(own("boss/m1.0", true), "m1.0");
        assert_eq!(own("boss/writer/m1.0", true), "writer/m1.0");
        assert_eq!(own("boss/m1.0/worker/m3.1", true), "m3.1");
        assert_eq!(own("boss/m1.0/worker//2/m3.1", true), "/2/m3.1");
        assert_eq!(own("boss", false), "");
        assert_eq!(own("boss/helper", false), "helper");
        assert_eq!(own("boss/m1.0/worker", false), "");
        assert_eq!(own("boss/m1.0/worker/helper", false), "helper");
    }
}
