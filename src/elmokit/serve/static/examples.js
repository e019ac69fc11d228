// Examples for new users. All texts were written for this page.

/** One word in three sentences: twice in one sense, then in another. */
export const TRIPLES = [
  [
    "play",
    "The children play in the garden.",
    "We play chess on Sundays.",
    "She wrote a play about her family.",
  ],
  [
    "bank",
    "The bank lent the company two million dollars.",
    "The bank raised its interest rates.",
    "They sat on the bank of the river.",
  ],
  [
    "left",
    "She left the house at noon.",
    "They left for London yesterday.",
    "She writes with her left hand.",
  ],
  [
    "light",
    "It is a light aircraft with two seats.",
    "He carried a light coat.",
    "She saw a light in the window.",
  ],
  ["can", "You can see the sea from here.", "Birds can fly.", "He opened a can of beans."],
];

export const SENTENCES = [
  {
    name: "read",
    text: "I read the book yesterday.\nCan you read the letter now?",
    word: "read",
  },
  {
    name: "bank",
    text: [
      "The bank lent the company two million dollars.",
      "They sat on the bank of the river.",
      "The bank raised its interest rates.",
    ].join("\n"),
    word: "bank",
  },
  {
    name: "play",
    text: [
      "The children play in the garden.",
      "She wrote a play about her family.",
      "We play chess on Sundays.",
    ].join("\n"),
    word: "play",
  },
  {
    name: "light",
    text: "It is a light aircraft with two seats.\nShe saw a light in the window.",
    word: "light",
  },
  {
    name: "left",
    text: "She left the house at noon.\nShe writes with her left hand.",
    word: "left",
  },
];

const senses = (...groups) =>
  groups.flatMap(([sense, ...texts]) => texts.map((text) => `${text} | ${sense}`)).join("\n");

export const SENSES = [
  {
    name: "bank",
    word: "bank",
    text: senses(
      [
        "money",
        "The bank raised its interest rates.",
        "He works for a bank in London.",
        "The bank lent the company two million dollars.",
        "She opened an account at the bank.",
        "The central bank cut rates again.",
        "The bank was robbed by two men.",
      ],
      [
        "river",
        "They sat on the bank of the river.",
        "The village lies on the south bank of the river.",
        "We walked along the bank of the canal.",
        "The boat was tied to the bank of the stream.",
        "Trees grow on the east bank of the lake.",
        "The army camped on the north bank of the river.",
      ],
    ),
  },
  {
    name: "play",
    word: "play",
    text: senses(
      [
        "game",
        "The children play in the garden every day.",
        "He will play for the national team.",
        "We play chess on Sundays.",
        "They play football in the park.",
        "Do you play tennis?",
        "The boys play outside until it is dark.",
      ],
      [
        "theater",
        "The play opened on Broadway to good reviews.",
        "She wrote a play about her family.",
        "The play was performed in London.",
        "His first play was staged in 1895.",
        "We saw a new play at the theater.",
        "The last act of the play is very sad.",
      ],
      [
        "music",
        "She can play the piano.",
        "They play the violin in an orchestra.",
        "He learned to play the guitar.",
        "The band will play a new song.",
      ],
    ),
  },
  {
    name: "left",
    word: "left",
    text: senses(
      [
        "departed",
        "She left the house at noon.",
        "He left the party in 1990.",
        "They left for London yesterday.",
        "The train left the station.",
        "My brother left school at sixteen.",
        "He left his wife and moved to Paris.",
      ],
      [
        "direction",
        "Turn left at the corner.",
        "He broke his left arm.",
        "The left side of the road is closed.",
        "She writes with her left hand.",
        "The house is on the left.",
        "He was wounded in the left leg.",
      ],
    ),
  },
  {
    name: "light",
    word: "light",
    text: senses(
      [
        "brightness",
        "Turn on the light.",
        "She saw a light in the window.",
        "The light of the sun was very bright.",
        "The light went out.",
        "There was a red light above the door.",
        "Plants need light and water.",
      ],
      [
        "weight",
        "The bag was very light.",
        "The new engine is small and light.",
        "It is a light aircraft with two seats.",
        "He carried a light coat.",
        "The bicycle is light and strong.",
      ],
    ),
  },
  {
    name: "can",
    word: "can",
    text: senses(
      [
        "be able to",
        "You can see the sea from here.",
        "We can go tomorrow.",
        "Birds can fly.",
        "They can read and write.",
        "She can come with us.",
      ],
      [
        "tin",
        "He opened a can of beans.",
        "She bought a can of paint.",
        "The can was empty.",
        "A can of soup stood on the table.",
        "The can fell on the floor.",
      ],
    ),
  },
];

export const NEIGHBORS = [
  { name: "rose (verb)", text: "And he rose up early in the morning.", word: "rose" },
  { name: "rose (flower)", text: "A red rose grew in the garden.", word: "rose" },
  { name: "well (noun)", text: "She drew water from the well.", word: "well" },
  { name: "well (adverb)", text: "It went well with him all his days.", word: "well" },
];

export const EXPECTATIONS = [
  { name: "read", text: "I read the book yesterday.", word: "read" },
  { name: "capital", text: "The capital of France is Paris.", word: "capital" },
  { name: "cat", text: "The cat sat on the mat.", word: "mat" },
  { name: "green ideas", text: "Colorless green ideas sleep furiously.", word: "ideas" },
];

const MUSIC = "A man is playing a guitar on a stage.";
const BRIDGE =
  "The old bridge was built by a miller in 1821. " +
  "It collapsed in the flood of 1870 and was never rebuilt.";

export const TASKS = {
  ner: [
    { name: "a journey", text: "Ann Smith met Bob in Paris. Then they flew to Oslo." },
    {
      name: "a factory",
      text: "Toyota will open a factory near Lyon in May, the French minister said.",
    },
  ],
  sst5: [
    { name: "positive", text: "A warm and funny film that stays with you." },
    { name: "negative", text: "The story is dull and the ending makes no sense." },
    { name: "neutral", text: "The film is about two brothers who run a hotel." },
  ],
  snli: [
    { name: "entailment", text: MUSIC, other: "A man makes music." },
    { name: "contradiction", text: MUSIC, other: "The man is asleep." },
    { name: "neutral", text: MUSIC, other: "The man is a famous singer." },
  ],
  squad: [
    { name: "who built it?", text: "Who built the bridge?", other: BRIDGE },
    { name: "when did it collapse?", text: "When did the bridge collapse?", other: BRIDGE },
  ],
  srl: [
    { name: "a letter", text: "Yesterday Ann gave her brother a letter in the garden." },
    {
      name: "several verbs",
      text: "The captain said that the boat, which carried coal, would leave in the morning.",
    },
  ],
  coref: [
    {
      name: "Ann and Bob",
      text: "Ann saw Bob in the garden. She called him, but he did not hear her.",
    },
    {
      name: "a visit",
      text:
        "The old doctor lived alone with his dog. Every morning his sister came to see him. " +
        "She brought bread for the doctor and a bone for the animal.",
    },
  ],
};
