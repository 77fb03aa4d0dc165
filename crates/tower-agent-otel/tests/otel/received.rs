//! The data that a collector has received.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data as Points;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::receiver::Received;

pub(crate) struct Data {
    pub(crate) spans: Spans,
    pub(crate) metrics: Metrics,
    pub(crate) logs: Vec<LogRecord>,
}

impl From<Received> for Data {
    fn from(
        Received {
            spans,
            metrics,
            logs,
        }: Received,
    ) -> Self {
        Self {
            spans: Spans(spans),
            metrics: Metrics(metrics),
            logs,
        }
    }
}

pub(crate) fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => String::new(),
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::ArrayValue(list)) => {
            let list: Vec<_> = list.values.iter().map(|value| text(Some(value))).collect();
            format!("[{}]", list.join(", "))
        }
        Some(other) => format!("{other:?}"),
    }
}

fn find(attributes: &[KeyValue], key: &str) -> Option<String> {
    attributes
        .iter()
        .find(|attribute| attribute.key == key)
        .map(|attribute| text(attribute.value.as_ref()))
}

pub(crate) struct Spans(pub(crate) Vec<Span>);

impl Spans {
    /// Returns the one span of this name.
    pub(crate) fn one(&self, name: &str) -> &Span {
        let mut found = self.0.iter().filter(|span| span.name == name);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no span `{name}`: {}", self.tree()));
        assert!(
            found.next().is_none(),
            "several spans `{name}`: {}",
            self.tree()
        );
        span
    }

    /// Returns the spans that are inside no other.
    pub(crate) fn roots(&self) -> Vec<&Span> {
        self.0
            .iter()
            .filter(|span| span.parent_span_id.is_empty())
            .collect()
    }

    /// Returns the spans that are inside no other one that was received, in the order of their
    /// start.
    pub(crate) fn outermost(&self) -> Vec<&Span> {
        let has = |id: &[u8]| self.0.iter().any(|span| span.span_id == id);
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|span| !has(&span.parent_span_id))
            .collect();
        found.sort_by_key(|span| span.start_time_unix_nano);
        found
    }

    /// Returns the tree of names from a span on.
    pub(crate) fn under(&self, span: &Span) -> String {
        match self.below(&span.span_id) {
            nothing if nothing.is_empty() => span.name.clone(),
            inside => format!("{}({inside})", span.name),
        }
    }

    /// Returns the tree of names: each span with those inside it, in the order of their start.
    pub(crate) fn tree(&self) -> String {
        self.below(&[])
    }

    fn below(&self, parent: &[u8]) -> String {
        let mut children: Vec<_> = self
            .0
            .iter()
            .filter(|span| span.parent_span_id == parent)
            .collect();
        children.sort_by_key(|span| (span.start_time_unix_nano, span.name.clone()));
        let lines = children.iter().map(|span| self.under(span));
        lines.collect::<Vec<_>>().join(", ")
    }
}

/// Reads a span.
pub(crate) trait Look {
    fn get(&self, key: &str) -> Option<String>;
    fn error(&self) -> Option<String>;
    fn events_of(&self, name: &str) -> Vec<&Event>;
    fn lasts_as_long_as(&self, inner: &Span);
}

impl Look for Span {
    fn get(&self, key: &str) -> Option<String> {
        find(&self.attributes, key)
    }

    /// Returns `error.type`, and checks that the status says the same.
    fn error(&self) -> Option<String> {
        let error = self.get("error.type");
        let code = self
            .status
            .as_ref()
            .map_or(StatusCode::Unset, |status| status.code());
        assert_eq!(
            code == StatusCode::Error,
            error.is_some(),
            "{}: {code:?}",
            self.name
        );
        error
    }

    fn events_of(&self, name: &str) -> Vec<&Event> {
        self.events
            .iter()
            .filter(|event| event.name == name)
            .collect()
    }

    fn lasts_as_long_as(&self, inner: &Span) {
        assert!(self.start_time_unix_nano <= inner.start_time_unix_nano);
        assert!(
            self.end_time_unix_nano >= inner.end_time_unix_nano,
            "{}",
            self.name
        );
    }
}

pub(crate) fn of_event(event: &Event, key: &str) -> Option<String> {
    find(&event.attributes, key)
}

pub(crate) fn of_log(record: &LogRecord, key: &str) -> Option<String> {
    find(&record.attributes, key)
}

pub(crate) struct Metrics(pub(crate) Vec<Metric>);

impl Metrics {
    /// Returns the names of all metrics.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.iter().map(|metric| &*metric.name).collect();
        names.sort_unstable();
        names
    }

    fn points(&self, name: &str) -> Option<&Points> {
        let mut found = self.0.iter().filter(|metric| metric.name == name);
        let metric = found.next()?;
        assert!(found.next().is_none(), "the metric {name} came twice");
        metric.data.as_ref()
    }

    pub(crate) fn histogram(&self, name: &str) -> &[HistogramDataPoint] {
        match self.points(name) {
            Some(Points::Histogram(histogram)) => &histogram.data_points,
            other => panic!("{name}: {other:?} among {:?}", self.names()),
        }
    }

    fn sum(&self, name: &str) -> &[NumberDataPoint] {
        match self.points(name) {
            Some(Points::Sum(sum)) => &sum.data_points,
            None => &[],
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns the total of a counter.
    pub(crate) fn total(&self, name: &str) -> i64 {
        let points = self.sum(name).iter().map(|point| match point.value {
            Some(Number::AsInt(tokens)) => tokens,
            other => panic!("{other:?}"),
        });
        points.sum()
    }

    /// Returns how often a histogram was recorded, by the value of an attribute.
    pub(crate) fn counts(&self, name: &str, key: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for point in self.histogram(name) {
            *counts
                .entry(find(&point.attributes, key).unwrap_or_default())
                .or_default() += point.count;
        }
        counts
    }

    /// Returns the sums of a histogram, by the value of an attribute.
    pub(crate) fn sums(&self, name: &str, key: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for point in self.histogram(name) {
            let value = find(&point.attributes, key).unwrap_or_default();
            sums.insert(value, point.sum.unwrap());
        }
        sums
    }

    pub(crate) fn attributes(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        match self.points(name) {
            Some(Points::Histogram(histogram)) => histogram
                .data_points
                .iter()
                .map(|point| texts(&point.attributes))
                .collect(),
            Some(Points::Sum(sum)) => sum
                .data_points
                .iter()
                .map(|point| texts(&point.attributes))
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|attribute| (attribute.key.clone(), text(attribute.value.as_ref())))
        .collect()
}
