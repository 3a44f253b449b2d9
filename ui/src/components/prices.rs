//! What models cost, as the user enters it: an amount per million tokens, for each model that was asked.
//!
//! Invariant: an empty field is no price, and a model without one has no cost. Nothing is saved while a field cannot be
//! read. Models that were not asked in this time keep their prices.

use leptos::{ev, prelude::*};
use protocol::{Op, Price, Prices, ProviderId};
use transcript::ledger::{ModelSums, read_money, typed_money};

use crate::desk::use_desk;

/// A model's fields.
#[derive(Clone, Copy)]
struct Fields {
    input: RwSignal<String>,
    cached: RwSignal<String>,
    output: RwSignal<String>,
}

#[derive(Clone)]
struct Entry {
    provider: ProviderId,
    model: String,
    provider_name: String,
    fields: Fields,
}

impl Entry {
    fn of(model: &ModelSums, prices: Option<&Prices>) -> Self {
        let price = prices.and_then(|prices| prices.of(model.provider, &model.model));
        let field =
            |micros: Option<u64>| RwSignal::new(micros.map(typed_money).unwrap_or_default());
        Self {
            provider: model.provider,
            model: model.model.clone(),
            provider_name: model.provider_name.clone(),
            fields: Fields {
                input: field(price.map(|price| price.input_micros)),
                cached: field(price.and_then(|price| price.cached_micros)),
                output: field(price.map(|price| price.output_micros)),
            },
        }
    }

    /// The price that is entered; `None` for none.
    fn read(&self) -> Result<Option<Price>, String> {
        let Fields {
            input,
            cached,
            output,
        } = self.fields;
        let read = |field: RwSignal<String>| {
            let typed = field.get_untracked();
            match typed.trim() {
                "" => Ok(None),
                typed => read_money(typed).map(Some).ok_or_else(|| {
                    format!(
                        "“{typed}” at {} is no amount; write it like 0.25.",
                        self.model
                    )
                }),
            }
        };
        match (read(input)?, read(cached)?, read(output)?) {
            (None, None, None) => Ok(None),
            (Some(input_micros), cached_micros, Some(output_micros)) => Ok(Some(Price {
                provider: self.provider,
                model: self.model.clone(),
                input_micros,
                cached_micros,
                output_micros,
            })),
            _ => Err(format!(
                "{} needs a price for tokens in and one for tokens out; 0 is one.",
                self.model
            )),
        }
    }
}

/// The prices of these models.
#[component]
pub(crate) fn PriceList(models: Vec<ModelSums>, prices: Option<Prices>) -> impl IntoView {
    let desk = use_desk();
    let words = RwSignal::new(None::<String>);
    let currency = prices.as_ref().map(|prices| prices.currency.clone());
    let currency = RwSignal::new(currency.unwrap_or_else(|| "$".to_owned()));
    let entries: Vec<Entry> = models
        .iter()
        .map(|model| Entry::of(model, prices.as_ref()))
        .collect();
    let shown = entries.clone();
    let save = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let mut kept: Vec<Price> = prices.iter().flat_map(|p| p.models.clone()).collect();
        for entry in &entries {
            kept.retain(|price| price.provider != entry.provider || price.model != entry.model);
            match entry.read() {
                Ok(price) => kept.extend(price),
                Err(wrong) => return words.set(Some(wrong)),
            }
        }
        words.set(None);
        let prices = Prices {
            currency: currency.get_untracked().trim().to_owned(),
            models: kept,
        };
        desk.act(Op::ChoosePrices { prices });
    };
    view! {
        <details class="form-details">
            <summary data-testid="prices">"Prices"</summary>
            <form class="prices" on:submit=save>
                <p class="hint">
                    "What a million tokens cost, as your provider bills them. Without a price no cost is shown. Prices \
                     apply to the past as well."
                </p>
                <label class="price-currency">
                    <span class="label">"Currency"</span>
                    <input
                        class="field"
                        type="text"
                        maxlength=Prices::CURRENCY_CHARS_MAX.to_string()
                        data-testid="price-currency"
                        bind:value=currency
                    />
                </label>
                {shown
                    .into_iter()
                    .map(|entry| {
                        let Fields { input, cached, output } = entry.fields;
                        let name = format!("{} on {}", entry.model, entry.provider_name);
                        view! {
                            <fieldset class="price">
                                <legend>{name}</legend>
                                {amount("Tokens in", "price-in", input)}
                                {amount("From the cache", "price-cached", cached)}
                                {amount("Tokens out", "price-out", output)}
                            </fieldset>
                        }
                    })
                    .collect_view()}
                <div aria-live="polite">
                    {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
                </div>
                <div class="form-actions">
                    <button type="submit" class="button" data-testid="prices-save">"Save prices"</button>
                </div>
            </form>
        </details>
    }
    .into_any()
}

fn amount(label: &'static str, testid: &'static str, text: RwSignal<String>) -> impl IntoView {
    view! {
        <label>
            <span class="label">{label}</span>
            <input
                class="field"
                type="text"
                inputmode="decimal"
                autocomplete="off"
                data-testid=testid
                bind:value=text
            />
        </label>
    }
}
