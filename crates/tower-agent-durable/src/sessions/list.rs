use sqlx::{Database, Encode, QueryBuilder, Type};

use super::query::SessionQuery;
use crate::time::{millis, now};

const LIST: &str = "\
    SELECT app, owner, session, kind, version, updated_at, is_waiting, expires_at \
    FROM tower_agent_sessions WHERE (expires_at IS NULL OR expires_at > ";

/// Returns the statement of a list. It has only the conditions that the query sets, so that the
/// database finds an index for them.
pub(super) fn list<D: Database>(query: &SessionQuery) -> QueryBuilder<D>
where
    for<'v> i64: Encode<'v, D> + Type<D>,
    for<'v> String: Encode<'v, D> + Type<D>,
{
    let mut sql = QueryBuilder::new(LIST);
    sql.push_bind(now()).push(")");
    if let Some(app) = &query.app {
        sql.push(" AND app = ").push_bind(app.to_string());
    }
    if let Some(user) = &query.user {
        sql.push(" AND owner = ").push_bind(user.to_string());
    }
    if let Some(kind) = &query.kind {
        sql.push(" AND kind = ").push_bind(kind.to_string());
    }
    if query.is_waiting {
        sql.push(" AND is_waiting");
    }
    if let Some(after) = &query.after {
        let position = [&after.key.app, &after.key.user, &after.key.session];
        sql.push(" AND (updated_at, app, owner, session) < (")
            .push_bind(millis(after.updated_at));
        for name in position {
            sql.push(", ").push_bind(name.to_string());
        }
        sql.push(")");
    }
    sql.push(" ORDER BY updated_at DESC, app DESC, owner DESC, session DESC LIMIT ")
        .push_bind(i64::from(query.limit));
    sql
}
