//! What the program declares about the tools of the suites: the one place where a choice is made.

use serde_json::Value;
use tower_agent_middleware::flow::{Label, Readers, ToolFlow};

/// How exactly results are labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// Nothing is hidden, and each argument of a consequential tool decides what happens.
    Taint,
    /// Each result has one label.
    ByTool,
    /// Fields that the platform itself writes are trusted: ids, sizes, verified accounts.
    ByField,
}

/// Who writes a result, and who may read it.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// The platform, the program or the user alone.
    Trusted,
    /// Others too; for the user alone.
    Private,
    /// Others too; for all members of the workspace.
    Internal,
    /// Anybody, for everybody.
    Public,
}

/// Who reads the arguments of a consequential tool.
#[derive(Clone, Copy, Debug)]
enum Receivers {
    /// The user alone.
    User,
    /// Those whom these arguments name.
    Named(&'static [&'static str]),
    /// Those whom the argument `participants` names, if it is there.
    Participants,
    /// The members of the workspace.
    Members,
    /// Others whom the arguments do not name.
    Strangers,
}

const MEMBERS: &str = "members";

/// What is declared about a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    name: &'static str,
    content: Content,
    /// The fields that the platform itself writes.
    fields: &'static [&'static str],
    is_consequential: bool,
    /// The arguments of a consequential tool that do not decide what it does.
    data: &'static [&'static str],
    receivers: Receivers,
}

const fn reading(name: &'static str, content: Content) -> Declared {
    Declared {
        name,
        content,
        fields: &[],
        is_consequential: false,
        data: &[],
        receivers: Receivers::User,
    }
}

const fn acting(name: &'static str, content: Content) -> Declared {
    let mut declared = reading(name, content);
    declared.is_consequential = true;
    declared
}

impl Declared {
    const fn fields(mut self, pointers: &'static [&'static str]) -> Self {
        self.fields = pointers;
        self
    }

    const fn data(mut self, pointers: &'static [&'static str]) -> Self {
        self.data = pointers;
        self
    }

    const fn receivers(mut self, receivers: Receivers) -> Self {
        self.receivers = receivers;
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_consequential(&self) -> bool {
        self.is_consequential
    }

    /// Returns whether the argument with this name decides what a call does.
    pub(crate) fn is_control(&self, argument: &str) -> bool {
        !self
            .data
            .iter()
            .any(|pointer| pointer.strip_prefix('/') == Some(argument))
    }

    /// Returns the places that the declaration names: of arguments, and of the result.
    #[cfg(test)]
    pub(crate) fn arguments(&self) -> Vec<&'static str> {
        let named = match self.receivers {
            Receivers::Named(pointers) => pointers,
            Receivers::Participants => &["/participants"],
            _ => &[],
        };
        self.data.iter().chain(named).copied().collect()
    }

    pub(crate) fn flow(&self, labels: Labels) -> ToolFlow {
        let members = Readers::only([Readers::USER, MEMBERS]);
        let mut flow = ToolFlow::trusted().label(match self.content {
            Content::Trusted => Label::trusted(),
            Content::Private => Label::unknown(),
            Content::Internal => Label::untrusted().with_readers(members),
            Content::Public => Label::untrusted(),
        });
        if self.is_consequential {
            flow = flow.consequential();
        }
        if labels == Labels::Taint {
            return flow;
        }
        if labels == Labels::ByField {
            for field in self.fields {
                flow = flow.trusted_at(field);
            }
        }
        flow = flow.data(self.data.iter().copied());
        match self.receivers {
            Receivers::User => flow,
            Receivers::Named(pointers) => pointers
                .iter()
                .fold(flow, |flow, pointer| flow.recipients(pointer)),
            Receivers::Participants => flow.recipients_by(participants),
            Receivers::Members => flow.recipients_by(|_| vec![MEMBERS.to_owned()]),
            Receivers::Strangers => flow.recipients_by(|_| vec!["strangers".to_owned()]),
        }
    }
}

fn participants(arguments: &Value) -> Vec<String> {
    let participants = arguments["participants"].as_array();
    let names = participants.into_iter().flatten().map(|name| {
        // Whoever is no text is nobody's reader.
        name.as_str().unwrap_or("unknown").to_owned()
    });
    names.collect()
}

pub(crate) fn declared(tool: &str) -> Option<&'static Declared> {
    TOOLS.iter().find(|declared| declared.name == tool)
}

const EVENTS: &[&str] = &["/*/id_", "/*/status", "/*/all_day"];
const EVENT: &[&str] = &["/id_", "/status", "/all_day"];
const FILES: &[&str] = &["/*/id_", "/*/size", "/*/owner", "/*/last_modified"];
const FILE: &[&str] = &["/id_", "/size", "/owner", "/last_modified"];
const MAILS: &[&str] = &["/*/id_", "/*/timestamp", "/*/status", "/*/read"];
// Who pays and who is paid, and how much, is the bank's word; the subject is the payer's.
const PAYMENTS: &[&str] = &[
    "/*/id",
    "/*/sender",
    "/*/recipient",
    "/*/amount",
    "/*/date",
    "/*/recurring",
];
// The platform knows who has written a message.
const MESSAGES: &[&str] = &["/*/sender"];

/// All tools of the four suites.
pub(crate) const TOOLS: &[Declared] = &[
    // Mails, in `workspace` and `travel`. The address book is the user's own.
    reading("search_contacts_by_name", Content::Trusted),
    reading("search_contacts_by_email", Content::Trusted),
    reading("get_unread_emails", Content::Private).fields(MAILS),
    reading("get_received_emails", Content::Private).fields(MAILS),
    reading("get_sent_emails", Content::Private).fields(MAILS),
    reading("get_draft_emails", Content::Private).fields(MAILS),
    reading("search_emails", Content::Private).fields(MAILS),
    acting("send_email", Content::Trusted)
        .data(&["/subject", "/body"])
        .receivers(Receivers::Named(&["/recipients", "/cc", "/bcc"])),
    acting("delete_email", Content::Trusted),
    // The calendar. Whoever invites the user writes an event, its title and its participants. A
    // tool that changes an event or a file returns all of it.
    reading("get_current_day", Content::Trusted),
    reading("search_calendar_events", Content::Private).fields(EVENTS),
    reading("get_day_calendar_events", Content::Private).fields(EVENTS),
    acting("create_calendar_event", Content::Trusted)
        .data(&[
            "/title",
            "/description",
            "/location",
            "/start_time",
            "/end_time",
        ])
        .receivers(Receivers::Participants),
    acting("reschedule_calendar_event", Content::Private)
        .fields(EVENT)
        .data(&["/new_start_time", "/new_end_time"]),
    acting("add_calendar_event_participants", Content::Private)
        .fields(EVENT)
        .receivers(Receivers::Participants),
    acting("cancel_calendar_event", Content::Trusted),
    // Files, which others may share with the user.
    reading("list_files", Content::Private).fields(FILES),
    reading("search_files", Content::Private).fields(FILES),
    reading("search_files_by_filename", Content::Private).fields(FILES),
    reading("get_file_by_id", Content::Private).fields(FILE),
    acting("create_file", Content::Trusted).data(&["/content"]),
    acting("append_to_file", Content::Private)
        .fields(FILE)
        .data(&["/content"]),
    acting("delete_file", Content::Private).fields(FILE),
    acting("share_file", Content::Private)
        .fields(FILE)
        .receivers(Receivers::Named(&["/email"])),
    // The bank. Standing orders are the user's own.
    reading("get_iban", Content::Trusted),
    reading("get_balance", Content::Trusted),
    reading("get_user_info", Content::Trusted),
    reading("get_scheduled_transactions", Content::Trusted),
    reading("get_most_recent_transactions", Content::Private).fields(PAYMENTS),
    reading("read_file", Content::Private),
    acting("send_money", Content::Trusted)
        .data(&["/subject", "/date"])
        .receivers(Receivers::Named(&["/recipient"])),
    acting("schedule_transaction", Content::Trusted)
        .data(&["/subject", "/date"])
        .receivers(Receivers::Named(&["/recipient"])),
    acting("update_scheduled_transaction", Content::Trusted)
        .data(&["/subject", "/date"])
        .receivers(Receivers::Strangers),
    acting("update_password", Content::Trusted),
    acting("update_user_info", Content::Trusted),
    // Chat and the web. Anybody can name a channel: only its id is the platform's. To fetch a page
    // tells its server the address, so it is consequential.
    reading("get_channels", Content::Internal).fields(&["/*/id"]),
    reading("get_users_in_channel", Content::Trusted),
    reading("read_channel_messages", Content::Internal).fields(MESSAGES),
    reading("read_inbox", Content::Internal).fields(MESSAGES),
    acting("send_direct_message", Content::Trusted)
        .data(&["/body"])
        .receivers(Receivers::Members),
    acting("send_channel_message", Content::Trusted)
        .data(&["/body"])
        .receivers(Receivers::Members),
    acting("add_user_to_channel", Content::Trusted),
    acting("invite_user_to_slack", Content::Trusted),
    acting("remove_user_from_slack", Content::Trusted),
    acting("get_webpage", Content::Public).receivers(Receivers::Strangers),
    acting("post_webpage", Content::Trusted)
        .data(&["/content"])
        .receivers(Receivers::Strangers),
    // Journeys. All is the platform's, except reviews.
    reading("get_user_information", Content::Trusted),
    reading("get_all_hotels_in_city", Content::Trusted),
    reading("get_hotels_prices", Content::Trusted),
    reading("get_hotels_address", Content::Trusted),
    reading("get_rating_reviews_for_hotels", Content::Public),
    reading("get_all_restaurants_in_city", Content::Trusted),
    reading("get_cuisine_type_for_restaurants", Content::Trusted),
    reading("get_restaurants_address", Content::Trusted),
    reading(
        "get_dietary_restrictions_for_all_restaurants",
        Content::Trusted,
    ),
    reading("get_contact_information_for_restaurants", Content::Trusted),
    reading("get_price_for_restaurants", Content::Trusted),
    reading("check_restaurant_opening_hours", Content::Trusted),
    reading("get_rating_reviews_for_restaurants", Content::Public),
    reading("get_all_car_rental_companies_in_city", Content::Trusted),
    reading("get_car_types_available", Content::Trusted),
    reading("get_car_fuel_options", Content::Trusted),
    reading("get_car_rental_address", Content::Trusted),
    reading("get_car_price_per_day", Content::Trusted),
    reading("get_rating_reviews_for_car_rental", Content::Public),
    reading("get_flight_information", Content::Trusted),
    acting("reserve_hotel", Content::Trusted),
    acting("reserve_restaurant", Content::Trusted),
    acting("reserve_car_rental", Content::Trusted),
];
